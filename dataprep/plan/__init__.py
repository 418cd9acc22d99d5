"""What a conversion will write: split, order and shard of every sample, and the files that hold this decision."""
