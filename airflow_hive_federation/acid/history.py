"""Checks that the directories of a snapshot have not been removed by Hive's cleaner.

After the commit of a compaction, Hive's cleaner removes the directories that the compaction replaced. A
reader with an older snapshot does not see the compaction's directory, and its own directories are gone: it
must not read the table as empty.
"""

from __future__ import annotations

from collections.abc import Iterator

from airflow_hive_federation.acid.names import (
    DirectoryKind,
    DirectoryName,
    is_acid_directory,
    parse_directory,
)
from airflow_hive_federation.acid.snapshot import AcidState
from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.model.write_ids import RangeState, ValidWriteIds


def check_history(location: str, state: AcidState, write_ids: ValidWriteIds) -> None:
    """Refuse a snapshot if all inputs of a compaction that it does not see are gone.

    The check cannot detect that only some of the inputs are gone.

    :param write_ids: valid write ids of the snapshot. The reader does not need what was written later.
    :raises AcidFormatError: if the cleaner has removed the inputs.
    """
    for path in state.invisible:
        made = parse_directory(path.rpartition("/")[2])
        if not made.visibility_txn_id or not _sees_any(made, write_ids):
            continue
        if not _is_hidden_anyway(made, state) and not _has_inputs(made, state):
            raise AcidFormatError(
                f"{location}: the files of this snapshot were compacted into {path}, and are gone.",
                remedy="Read with a newer snapshot; `reading` keeps the files of its snapshot.",
                path=f"{location}/{path}",
            )


def _sees_any(made: DirectoryName, write_ids: ValidWriteIds) -> bool:
    return write_ids.range_state(max(_lowest(made), 1), made.max_write_id) is not RangeState.NONE


def _is_hidden_anyway(made: DirectoryName, state: AcidState) -> bool:
    """Return whether the directories to read hold or replace all inputs of the compaction."""
    if state.base is not None and state.base.name.max_write_id >= made.max_write_id:
        return True
    return any(
        delta.name.min_write_id <= _lowest(made) and delta.name.max_write_id >= made.max_write_id
        for delta in (*state.deltas, *state.delete_deltas)
    )


def _has_inputs(made: DirectoryName, state: AcidState) -> bool:
    if made.kind is DirectoryKind.BASE and (state.originals or any(_originals(state))):
        return True
    others = [directory.name for directory in state.directories]
    for path in (*state.obsolete, *state.invisible):
        name = path.rpartition("/")[2]
        if is_acid_directory(name):
            others.append(parse_directory(name))
    # A streaming batch may reach beyond its compacted part; the base of converted tables is below zero.
    return any(
        _lowest(other) <= made.max_write_id and max(other.max_write_id, 0) >= _lowest(made)
        for other in others
        if other.visibility_txn_id != made.visibility_txn_id
    )


def _originals(state: AcidState) -> Iterator[str]:
    return (path for path in state.obsolete if not is_acid_directory(path.rpartition("/")[2]))


def _lowest(name: DirectoryName) -> int:
    return 0 if name.kind is DirectoryKind.BASE else name.min_write_id
