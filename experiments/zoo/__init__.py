"""A zoo of small language models trained from scratch, with their token losses and task scores.

Run from the repository root: `PYTHONPATH=experiments python3 -m zoo.run --help`; see README.md.
"""
