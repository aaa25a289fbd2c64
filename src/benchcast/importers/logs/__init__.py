"""Evaluation logs of other harnesses."""
