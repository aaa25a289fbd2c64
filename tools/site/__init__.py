"""What the documentation site is made of: its pictures, the command line reference, and the check of the README."""
