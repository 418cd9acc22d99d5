"""Show samples before and after the transforms, as the model gets them.

`draw` runs a loader's own pipeline over a few samples and makes its tensors visible. `preview` has
the result, as a picture or HTML. `command` is the command.
"""

from loaders.preview.preview import Draw, Group, Item, Preview

__all__ = ["Draw", "Group", "Item", "Preview"]
