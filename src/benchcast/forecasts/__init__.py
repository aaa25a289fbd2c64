"""What users call: fit, predict, status."""
