"""Coverage of the intervals on synthetic worlds, for changes of the interval rule: `python -m lab.log.NAME`."""
