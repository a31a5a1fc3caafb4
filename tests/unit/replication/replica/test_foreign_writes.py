"""The loads' records show the writes of others on a target."""

from __future__ import annotations

import pytest

from airflow_hive_federation.errors import TargetChangedError
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.replication.replica.foreign_writes import (
    SHOWN,
    ForeignWrite,
    PlacedFile,
    foreign_functions,
    foreign_write_ids,
    names_digest,
    refuse_foreign_writes,
    suspect_files,
    unplaced,
)

ROOT = "file:/w/t"


def there(*paths: str, size_bytes: int = 5, modified_ns: int = 7) -> dict[str, FileEntry]:
    return {
        f"{ROOT}/{path}": FileEntry(path=path, size_bytes=size_bytes, modified_ns=modified_ns)
        for path in paths
    }


@pytest.mark.parametrize(
    ("path", "suspect"),
    [
        ("delta_0000006_0000006_0000/bucket_00000_0", True),
        ("p=1/delete_delta_0000006_0000006_0000/bucket_00000_0", True),
        ("base_0000006/bucket_00000", True),
        ("delta_0000001_0000006/bucket_00000", True),
        ("delta_of_somebody/bucket_00000", True),
        ("000000_0", True),
        ("p=1/000000_0", True),
        # A compaction of the target's own, and what the source had before one of its own.
        ("base_0000005_v0000077/bucket_00000", False),
        ("p=1/delta_0000001_0000005_v0000077/bucket_00000", False),
        ("delta_0000005_0000005_0000/bucket_00000_0", False),
        # A base hides what was there before the table became a transactional one.
        ("p=2/000000_0", False),
        ("_hive_federation/delta_0000006_0000006/bucket_00000", False),
        ("p=1/.hive-staging_1/000000_0", False),
    ],
)
def test_files_of_a_transactional_table(path: str, suspect: bool) -> None:
    files = there(path, "p=2/base_0000003/bucket_00000")
    suspects = suspect_files(files, {}, known=5, adopted=False)
    assert list(suspects) == ([f"{ROOT}/{path}"] if suspect else [])


def test_a_table_that_was_a_source_has_files_of_its_own() -> None:
    files = there(
        "000000_0", "delta_0000005_0000005_0000/bucket_00000_0", "delta_0000006_0000006/bucket_00000"
    )
    suspects = suspect_files(files, {}, known=5, adopted=True)
    assert list(suspects) == [f"{ROOT}/delta_0000006_0000006/bucket_00000"]


@pytest.mark.parametrize(
    ("placed", "suspect"),
    [
        (PlacedFile(size_bytes=5, modified_ns=7), False),
        (PlacedFile(size_bytes=5), False),
        (PlacedFile(size_bytes=None), False),
        (PlacedFile(size_bytes=6, modified_ns=7), True),
        (PlacedFile(size_bytes=5, modified_ns=6), True),
        (None, True),
    ],
)
@pytest.mark.parametrize("path", ["x", "p=1/x"])
def test_files_of_other_tables(path: str, placed: PlacedFile | None, suspect: bool) -> None:
    recorded = {f"{ROOT}/{path}": placed} if placed else {}
    assert bool(suspect_files(there(path), recorded, known=None, adopted=False)) is suspect


def test_a_store_without_times_raises_no_alarm() -> None:
    files = there("x", modified_ns=0)
    placed = {f"{ROOT}/x": PlacedFile(size_bytes=5, modified_ns=6)}
    assert not suspect_files(files, placed, known=None, adopted=False)


def test_what_another_load_may_have_placed_is_no_foreign_write() -> None:
    suspects = there("a", "b", "c", "d")
    placed = iter(
        [
            (f"{ROOT}/a", PlacedFile(size_bytes=5)),
            (f"{ROOT}/b", PlacedFile(size_bytes=None)),
            (f"{ROOT}/c", PlacedFile(size_bytes=4)),
            (f"{ROOT}/x", PlacedFile(size_bytes=5)),
        ]
    )
    assert list(unplaced(suspects, placed)) == [f"{ROOT}/c", f"{ROOT}/d"]


def test_reading_ends_when_all_is_accounted_for() -> None:
    more = iter([(f"{ROOT}/a", PlacedFile(size_bytes=5)), (f"{ROOT}/b", PlacedFile(size_bytes=5))])
    assert not unplaced(there("a"), more)
    assert len(list(more)) == 1


def test_write_ids() -> None:
    def differences(high_watermark: int, **more: tuple[int, ...]) -> list[str]:
        ids = ValidWriteIds(table="d.t", high_watermark=high_watermark, **more)  # type: ignore[arg-type]
        return [str(name) for name in foreign_write_ids("t", ids, 5)]

    assert differences(4) == differences(5, open_ids=(5,)) == []
    assert differences(6) == ["t: write id 6, where the last cycle left 5"]
    assert differences(8, open_ids=(3, 7), aborted_ids=(6,)) == [
        "t: write ids 6 to 8 (open: 7; aborted: 6), where the last cycle left 5"
    ]


def test_functions() -> None:
    assert [str(name) for name in foreign_functions(["a", "c", "b"], iter(["a"]))] == [
        "function b",
        "function c",
    ]


def test_names_in_any_order_have_one_digest() -> None:
    assert names_digest(["p=1", "p=2"]) == names_digest(iter(["p=2", "p=1"]))
    assert len({names_digest(names) for names in (["p=1"], ["p=2"], ["p=1", "p=2"], ["p=1\np=2x"], [])}) == 5


def test_an_error_names_the_first_of_them_and_has_all() -> None:
    refuse_foreign_writes("d", "p", [])
    writes = [ForeignWrite(table="t", what=f"file {number:03}") for number in range(SHOWN + 5)]
    with pytest.raises(
        TargetChangedError, match=r"(?s)Target database d .* policy 'p'.*and 5 more"
    ) as caught:
        refuse_foreign_writes("d", "p", reversed(writes))
    assert caught.value.facts["differences"] == [str(write) for write in writes]
    assert "repair" in (caught.value.remedy or "")
