"""The laboratory: the paper's tables and figures, results pages, synthetic worlds, and how the embedded study was made.

It uses the package `benchcast` and is no part of it: run it from the root of a checkout, `python -m lab --help`.
"""
