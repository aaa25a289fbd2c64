"""Which method is best, and which texts to keep."""
