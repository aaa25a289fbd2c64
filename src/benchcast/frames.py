"""Results as tables: Arrow, and pandas where it is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from benchcast.errors import MissingExtraError
from benchcast.formatting import nan_to_none


def arrow_table(rows: Sequence[Mapping[str, Any]], types: Mapping[str, str]) -> Any:
    """Rows as a pyarrow.Table with the named columns and types; NaN becomes null."""
    import pyarrow as pa

    columns = {k: [nan_to_none(row[k]) for row in rows] for k in types}
    return pa.table({k: pa.array(columns[k], pa.type_for_alias(kind)) for k, kind in types.items()})


def pandas_frame(table: Any) -> Any:
    """A pyarrow.Table as a pandas.DataFrame."""
    if find_spec("pandas") is None:
        raise MissingExtraError("to_pandas() needs pandas; pip install pandas (to_arrow() works without it)")
    return table.to_pandas()
