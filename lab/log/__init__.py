"""The experiments of LOG.md, one file each, run with `python -m lab.log.NAME`."""
