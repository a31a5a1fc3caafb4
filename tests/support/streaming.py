"""Parts of the tests of streaming connections."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.orc

from airflow_hive_federation.ingest.builder import StreamingConnectionBuilder

Builders = Callable[..., StreamingConnectionBuilder]


def rows(directory: Path) -> list[tuple[Any, ...]]:
    """Return the rows of a closed connection's files, sorted."""
    files = sorted(directory.glob("**/bucket_*"))
    rows = [row["row"].values() for file in files for row in pyarrow.orc.read_table(file).to_pylist()]
    return sorted(tuple(values) for values in rows)
