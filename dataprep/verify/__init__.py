"""Check a prepared dataset. Nothing is changed."""
