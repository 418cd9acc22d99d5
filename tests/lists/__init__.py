"""Random lists of transforms, compared with the libraries themselves.

``scripts/random-lists`` draws nested lists, runs them through `loaders.build` and through the
library, and compares the pixels. A list is drawn so that both sides must give the same image: a
range is one number, a probability is 0 or 1. Other arguments are drawn too; after them only the
sizes are compared, because their distributions have tests of their own.

- `torchvision`, `timm`, `paddleclas`, `paddle_mixing`: the lists of a library; `choices`: tables of
  their arguments.
- `compare`: both sides of a list, and what differs.
- `__main__`: the command; prints the coverage of names and arguments.
"""
