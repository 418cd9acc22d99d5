"""`loaders bench`: measure each stage of a loader, and name the one that limits training.

::

    command     what the command does; begin here
    measure     rates of a pipeline that ends after each stage, and what else affects them
    model       what a loader is compared with: a model that it feeds, and torchvision's `DataLoader`
    remedies    changes that may make a loader faster
    results     what was measured, and what it means
    show        text, JSON and a page
"""
