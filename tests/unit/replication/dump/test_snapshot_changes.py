"""The files of a directory in a snapshot, from those of an earlier one and the difference of the two."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.replication.dump.snapshot_changes import (
    brought_forward,
    changed_paths,
    renamed_files,
)
from airflow_hive_federation.storage.snapshots import DiffEntry, Difference

#: The files of the table's directory ``t`` in the earlier snapshot.
BEFORE = ("a", "b", "p=1/c", "p=1/d", "p=10/e")


def entry(text: str) -> DiffEntry:
    """``CREATE t/a``, ``RENAME t/a t/b``."""
    kind, path, *target = text.split(" ")
    return DiffEntry(kind=Difference(kind), path=path, target=target[0] if target else "")


def file(path: str, modified_ns: int = 1) -> FileEntry:
    return FileEntry(path=path, size_bytes=1, modified_ns=modified_ns)


@pytest.mark.parametrize(
    ("diff", "changed"),
    [
        ([], set()),
        # A directory whose names have changed is named, too; so is one that got another mode.
        (["MODIFY ", "MODIFY t", "MODIFY t/p=1", "CREATE t/p=1/new"], {"p=1/new"}),
        (["MODIFY t/a"], {"a"}),
        (["DELETE t/p=1"], {"p=1"}),
        # Another one has the name now, and only it is listed: nothing below it existed.
        (["DELETE t/a", "CREATE t/a"], {"a"}),
        # Below a renamed directory, names are the former ones.
        (
            ["RENAME t/p=1 t/p=2", "MODIFY t/p=1/c", "CREATE t/p=1/new", "DELETE t/p=1/d"],
            {"p=1", "p=2"},
        ),
        (["RENAME t/p=1/c t/c"], {"p=1/c", "c"}),
        # It leaves the table, or comes from elsewhere.
        (["RENAME t/a u/a"], {"a"}),
        (["RENAME u/a t/z"], {"z"}),
        # A directory whose name begins like that of the table.
        (["CREATE t2/a", "DELETE u", "MODIFY t2"], set()),
        # The table's directory itself, or one above it.
        (["RENAME u t", "CREATE t/a"], {""}),
        (["DELETE t", "CREATE t"], {""}),
    ],
)
def test_the_paths_that_a_difference_names(diff: Sequence[str], changed: set[str]) -> None:
    assert changed_paths([entry(text) for text in diff], "t", BEFORE) == changed


def test_a_table_whose_directory_has_the_snapshots_or_lies_deep_in_it() -> None:
    diff = [entry("MODIFY "), entry("CREATE a/b/t/new"), entry("DELETE a/b")]
    assert changed_paths(diff[:2], "", ["a/x"]) == {"a/b/t/new"}
    assert changed_paths(diff[:2], "a/b/t", []) == {"new"}
    assert changed_paths(diff, "a/b/t", []) == {""}


def test_files_are_brought_forward() -> None:
    known = {path: file(path) for path in BEFORE}
    assert brought_forward(known, [], []) == list(known.values())
    now = brought_forward(known, ["p=1", "a"], [file("p=1/new"), file("a", 2)])
    assert now == [file("a", 2), file("b"), file("p=1/new"), file("p=10/e")]
    assert brought_forward(known, [""], [file("z")]) == [file("z")]


@pytest.mark.parametrize(
    ("diff", "now", "renamed"),
    [
        (["RENAME t/a t/z"], [file("z")], {"z": "a"}),
        # All below a renamed directory, unless it was changed, or is new.
        (
            ["RENAME t/p=1 t/p=2", "MODIFY t/p=1/c", "CREATE t/p=1/new"],
            [file("p=2/c", 2), file("p=2/d"), file("p=2/new", 2)],
            {"p=2/d": "p=1/d"},
        ),
        # Changed within the same millisecond, and by attributes alone.
        (["RENAME t/a t/z", "MODIFY t/a"], [file("z")], {}),
        # Out of a renamed directory, and into it.
        (
            ["RENAME t/p=1 t/p=2", "RENAME t/p=1/c t/c", "RENAME t/a t/p=2/a"],
            [file("c"), file("p=2/a"), file("p=2/d")],
            {"c": "p=1/c", "p=2/a": "a", "p=2/d": "p=1/d"},
        ),
        (["RENAME u/a t/z"], [file("z")], {}),
        (["RENAME t/a t/z", "DELETE t/z"], [file("z", 3)], {}),
    ],
)
def test_files_that_were_only_renamed(
    diff: Sequence[str], now: list[FileEntry], renamed: dict[str, str]
) -> None:
    known = {path: file(path) for path in BEFORE}
    assert renamed_files([entry(text) for text in diff], "t", known, now) == renamed


@pytest.mark.parametrize(
    "value",
    [{}, {"type": "CREATE"}, {"type": "COPY", "sourcePath": "a"}, {"type": "RENAME", "sourcePath": 1}],
)
def test_an_entry_of_a_report_that_cannot_be_read(value: object) -> None:
    with pytest.raises(ValueError, match=r"type|sourcePath"):
        DiffEntry.from_json(value)
