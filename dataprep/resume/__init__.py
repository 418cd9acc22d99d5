"""What earlier runs left in an output folder, and whether it may be kept."""
