"""Validation texts: the paper's mixture of benchmarks, or the user's texts."""
