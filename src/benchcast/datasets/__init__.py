"""Studies that are made from tables of losses."""
