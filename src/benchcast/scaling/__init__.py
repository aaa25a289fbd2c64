"""Models to come: larger, or trained for longer."""
