"""The directories of partitions whose listing proves that readers see the same files as before."""

from __future__ import annotations

import pytest

from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.model.write_ids import ValidTxns, ValidWriteIds
from airflow_hive_federation.replication.dump.directory_digests import DirectoryDigests, directory_digest
from airflow_hive_federation.replication.format.files import DataLocation

#: Of write ids 1 to 9, 5 is open and 3 aborted; transaction 50 is open.
WRITE_IDS = ValidWriteIds(table="d.t", high_watermark=9, open_ids=(5,), aborted_ids=frozenset({3}))
TRANSACTIONS = ValidTxns(high_watermark=60, open_ids=(50,))


def digest(*paths: str, write_ids: ValidWriteIds = WRITE_IDS) -> str:
    digests = DirectoryDigests(write_ids, TRANSACTIONS)
    listing = [FileEntry(path=path, size_bytes=1) for path in paths]
    place = DataLocation(partition="p=1", location="file:/t/p=1")
    assert list(digests.watch([(place, listing)])) == [(place, listing)]
    return digests.of("p=1")


@pytest.mark.parametrize(
    "path",
    [
        "delta_0000004_0000004_0000/bucket_00000",
        "delta_0000003_0000003_0000/bucket_00000",
        "delta_0000006_0000009/bucket_00000",
        "base_0000004/",
        "base_0000004_v0000049/bucket_00000",
        "000000_0",
    ],
)
def test_a_directory_of_ended_transactions_has_a_digest(path: str) -> None:
    assert digest(path) == directory_digest([FileEntry(path=path, size_bytes=1)])


@pytest.mark.parametrize(
    "path",
    [
        "delta_0000005_0000005_0000/bucket_00000",
        "delta_0000005_0000005_0000/",
        "delta_0000004_0000007/bucket_00000",
        "delta_0000005_0000006/bucket_00000",
        "delta_0000009_0000010/bucket_00000",
        "delete_delta_0000005_0000005_0000/bucket_00000",
        "base_0000005/bucket_00000",
        "base_0000004_v0000050/bucket_00000",
        "base_0000004_v0000061/bucket_00000",
        "HIVE_UNION_SUBDIR_1/delta_0000005_0000005_0000/bucket_00000",
    ],
)
def test_a_directory_that_the_end_of_an_open_transaction_changes_has_none(path: str) -> None:
    assert digest("delta_0000001_0000001_0000/bucket_00000", path) == ""


def test_writes_above_the_high_watermark_are_of_open_transactions() -> None:
    write_ids = ValidWriteIds(table="d.t", high_watermark=9)
    assert digest("delta_0000009_0000009_0000/bucket_00000", write_ids=write_ids)
    assert not digest("delta_0000010_0000010_0000/bucket_00000", write_ids=write_ids)


def test_a_digest_depends_on_paths_sizes_and_times() -> None:
    listings = [
        [],
        [FileEntry(path="a", size_bytes=1)],
        [FileEntry(path="a", size_bytes=2)],
        [FileEntry(path="a", size_bytes=1, modified_ns=1)],
        [FileEntry(path="b", size_bytes=1)],
        [FileEntry(path="a", size_bytes=1), FileEntry(path="b", size_bytes=1)],
    ]
    assert len({directory_digest(listing) for listing in listings}) == len(listings)
