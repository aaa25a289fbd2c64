"""The experiments of lab/LOG.md, one file each, run with `python -m lab.log.NAME`."""
