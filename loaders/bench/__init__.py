"""`loaders bench`: measure each stage of a loader, and name the one that limits training.

::

    the command        command: begin here; request
    what is measured   sources, torchvision_side, model, other_images, conditions
    measure            rates, results
    what it means      verdict, remedies
    what is shown      rows, text, page
"""
