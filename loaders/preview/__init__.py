"""Show samples before and after the transforms, as the model gets them.

`draw` runs a loader's own pipeline over a few samples, `display` makes its tensors visible,
`originals` decodes the stored images, and `preview` has the result, as a picture or HTML.
"""

from loaders.preview.preview import Draw, Group, Item, Preview

__all__ = ["Draw", "Group", "Item", "Preview"]
