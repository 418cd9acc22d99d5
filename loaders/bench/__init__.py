"""`loaders bench`: measure each stage of a loader, and name the one that limits training."""
