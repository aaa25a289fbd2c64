"""Fewer texts: which of them carry the forecasts, and what leaving the others out costs."""
