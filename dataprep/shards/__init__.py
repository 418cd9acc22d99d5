"""One shard: from source images to its committed files."""
