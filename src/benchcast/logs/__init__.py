"""Studies from logs of evaluation harnesses, which hold the log-likelihood of every answer of every item."""
