"""Validation texts: the paper's mixture of benchmarks, or any text of the user's own."""
