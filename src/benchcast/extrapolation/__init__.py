"""Forecast models that do not exist yet: larger models, longer training, and the final order of training runs."""
