"""Token losses of all models on one set of reference tokens."""
