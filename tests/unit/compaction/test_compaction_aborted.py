"""Leftovers of aborted transactions, and the transactions that the metastore may forget."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_federation.acid.snapshot import acid_state
from airflow_hive_federation.compaction.aborted import forgettable, sweep_table
from airflow_hive_federation.compaction.plan import compactor_write_ids
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.model.write_ids import UNBOUNDED, ValidTxns, ValidWriteIds
from airflow_hive_federation.transactions.snapshots import Snapshot


@pytest.mark.parametrize(
    ("paths", "write_ids", "highest"),
    [
        (("delta_0000001_0000001_0000/b",), f"9:{UNBOUNDED}::2", 9),
        # What is open is not for compaction.
        (("delta_0000001_0000001_0000/b",), "9:6:6:2", 5),
        # A directory of nothing but aborted writes is removed.
        (("delta_0000002_0000002_0000/b",), f"9:{UNBOUNDED}::2", 9),
        (("delta_0000002_0000004/b",), f"9:{UNBOUNDED}::1,3,4", 2),
        (("delete_delta_0000002_0000004/b",), f"9:{UNBOUNDED}::3", 2),
        # A compactor left out what had aborted, and a base hides it.
        (("delta_0000002_0000004_v0000007/b",), f"9:{UNBOUNDED}::3", 9),
        (("base_0000005/b", "delta_0000002_0000004/b"), f"9:{UNBOUNDED}::3", 9),
        # A batch that goes on above the watermark is not read yet, but it is there.
        (("delta_0000002_0000004/b",), "9:4:4:2", 1),
        # Hive's compactor has left a base inside the batch, which readers read all the same.
        (("base_0000003_v0000007/b", "delta_0000002_0000004/b"), "9:4:4:2", 1),
        (("base_0000003_v0000007/b", "delta_0000002_0000004/b"), "9:4:4:", 3),
    ],
)
def test_what_the_metastore_may_forget(paths: tuple[str, ...], write_ids: str, highest: int) -> None:
    listing = [FileEntry(path=path, size_bytes=1) for path in paths]
    txns = ValidTxns.everything()
    allowed = compactor_write_ids(ValidWriteIds.parse(f"d.t:{write_ids}"), listing, txns)
    assert forgettable(acid_state(listing, allowed, txns), allowed) == highest


class Partitions:
    """Answers the calls of the metastore client."""

    def __init__(self, *locations: Path) -> None:
        self._locations = locations

    def iter_partitions(self, database: str, table: str) -> Iterator[Any]:
        del database, table
        for location in self._locations:
            yield SimpleNamespace(sd=SimpleNamespace(location=f"file:{location}"))


def test_aborted_writes_go_from_all_of_a_table(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "t", tmp_path / "elsewhere"
    kept = [
        root / "p=1" / "delta_0000001_0000001_0000",
        root / "p=1" / "delta_0000004_0000005",
        root / ".hive-staging" / "delta_0000003_0000003_0000",
        elsewhere / "delta_0000001_0000001_0000",
    ]
    gone = [
        root / "p=1" / "delta_0000003_0000003_0000",
        root / "no partition" / "q=2" / "base_0000003",
        elsewhere / "delta_0000003_0000003_0000",
    ]
    for directory in (*kept, *gone):
        directory.mkdir(parents=True)
        (directory / "bucket_00000").touch()
    table = SimpleNamespace(
        dbName="d", tableName="t", sd=SimpleNamespace(location=f"file:{root}"), partitionKeys=["p"]
    )
    snapshot = Snapshot(
        write_ids=ValidWriteIds.parse(f"d.t:6:{UNBOUNDED}::3,5"),
        txns=ValidTxns.everything(),
    )
    client: Any = Partitions(root / "p=1", elsewhere)
    for _ in range(2):
        # Write id 5 is in a batch that stays.
        assert sweep_table(client, table, snapshot) == 4
        assert [path for path in (*kept, *gone) if path.exists()] == kept
