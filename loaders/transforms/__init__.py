"""Image operations as frozen records, for ``loaders.build(transforms=[...])``.

A record carries what the rest of the package asks about it. A new operation is one record here, one
function in the module of the same name in `loaders.dali`, and a name in `parse`. Nothing in this
package imports DALI or torch; `loaders.dali` turns the records into a graph::

    argument, parse/    from what users pass to a list of operations, presets; begin here
    base                what an operation is: its traits, checks of its fields, and limits
    color, combinators, crop_resize, decode_normalize, geometry, erasing, mixing, policies
                        the operations, as records of their parameters; mixing also draws them
    fuse                fewer operations that give the same images, and what they cost
"""
