"""Tools that build the documentation; no part of the package."""
