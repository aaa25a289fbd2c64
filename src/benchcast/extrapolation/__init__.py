"""Forecasts of models that do not exist yet: larger ones, longer runs, runs in the order they will end in."""
