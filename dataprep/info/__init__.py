"""What finished datasets contain: summaries and differences."""
