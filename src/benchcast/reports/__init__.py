"""Pages, figures and explanations."""
