"""The partitions that change when transactions end that are open at the dump."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.replication.dump.tables import Unsettled
from airflow_hive_federation.replication.format.files import VisibleFile
from airflow_hive_federation.replication.format.tables import PartitionLine

#: Write ids 5 and 7 are committed, 6 is open, and those from 8 on are not given out, or open.
OPEN = ValidWriteIds(table="d.t", high_watermark=7, open_ids=(6,))
SETTLED = ValidWriteIds(table="d.t", high_watermark=7)


def line(write_id: int | None) -> PartitionLine:
    return PartitionLine.of("p=1", types.Partition(values=["1"], writeId=write_id))


def file(path: str, **more: Any) -> VisibleFile:
    return VisibleFile(
        **{"partition": "p=1", **more},
        directory="file:/t/p=1",
        path=path,
        target_path=path,
        size_bytes=1,
        modified_ns=1,
    )


@pytest.mark.parametrize(
    ("write_ids", "write_id", "names"),
    [
        (OPEN, 5, ()),
        (OPEN, 6, ("p=1",)),
        (OPEN, 8, ("p=1",)),
        (SETTLED, 6, ()),
        (OPEN, -1, ()),
        (OPEN, None, ()),
        (None, 8, ()),
    ],
)
def test_statistics_of_an_open_transaction_are_unsettled(
    write_ids: ValidWriteIds | None, write_id: int | None, names: tuple[str, ...]
) -> None:
    unsettled = Unsettled(write_ids)
    lines = [line(write_id)]
    assert list(unsettled.watch_partitions(lines)) == lines
    assert unsettled.names == names


@pytest.mark.parametrize(
    ("write_ids", "listed", "names"),
    [
        (OPEN, file("delta_0000005_0000005/bucket_00000"), ()),
        (OPEN, file("delta_0000005_0000007/bucket_00000", filtered=True), ("p=1",)),
        # Only aborted transactions have rows there that no reader sees.
        (SETTLED, file("delta_0000005_0000006/bucket_00000", filtered=True), ()),
        (SETTLED, file("delta_0000007_0000008/bucket_00000", filtered=True), ("p=1",)),
        (SETTLED, file("delta_0000005_0000006/bucket_00000", side_file="flush_length"), ("p=1",)),
        (SETTLED, file("delta_0000005_0000006/bucket_00000", side_file="flush_length", partition=""), ()),
        (SETTLED, file("000000_0", filtered=True), ()),
    ],
)
def test_a_file_that_may_get_rows_is_unsettled(
    write_ids: ValidWriteIds, listed: VisibleFile, names: tuple[str, ...]
) -> None:
    unsettled = Unsettled(write_ids)
    assert list(unsettled.watch_files([listed])) == [listed]
    assert unsettled.names == names
