"""A study on disk."""
