"""A zoo of small language models trained from scratch, with their token losses and task scores.

Run from the repository root: `python -m lab.zoo.run --help`; see README.md.
"""
