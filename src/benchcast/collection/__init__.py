"""Run a model over the texts and keep its losses."""
