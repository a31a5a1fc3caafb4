"""Whether what a snapshot needs is there still.

Once a compaction has committed, Hive's cleaner removes what it replaced. A reader with an older snapshot does
not see the compaction's directory, and its own are gone: it must not take the table for an empty one.
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
    """Refuse where a compaction that the snapshot does not see has nothing left of what it replaced.

    Where some of it is left, nothing tells.

    :param write_ids: of the snapshot. What was written after it is not missed.
    :raises AcidFormatError: the cleaner has been there.
    """
    for path in state.invisible:
        made = parse_directory(path.rpartition("/")[2])
        if not made.visibility_txn_id or not _sees_any(made, write_ids):
            continue
        if not _is_hidden_anyway(made, state) and not _has_inputs(made, state):
            raise AcidFormatError(
                f"{location}: what this snapshot sees was compacted into {path}, and is gone.",
                remedy="Read with a newer snapshot; `reading` keeps the files of one.",
                path=f"{location}/{path}",
            )


def _sees_any(made: DirectoryName, write_ids: ValidWriteIds) -> bool:
    return write_ids.range_state(max(_lowest(made), 1), made.max_write_id) is not RangeState.NONE


def _is_hidden_anyway(made: DirectoryName, state: AcidState) -> bool:
    """What is read holds, or replaces, all that the compaction has read."""
    if state.base is not None and state.base.name.max_write_id >= made.max_write_id:
        return True
    return any(
        one.name.min_write_id <= _lowest(made) and one.name.max_write_id >= made.max_write_id
        for one in (*state.deltas, *state.delete_deltas)
    )


def _has_inputs(made: DirectoryName, state: AcidState) -> bool:
    if made.kind is DirectoryKind.BASE and (state.originals or any(_originals(state))):
        return True
    others = [one.name for one in state.directories]
    for path in (*state.obsolete, *state.invisible):
        name = path.rpartition("/")[2]
        if is_acid_directory(name):
            others.append(parse_directory(name))
    # Streaming batches reach beyond what is compacted of them; the base of converted tables is below zero.
    return any(
        _lowest(one) <= made.max_write_id and max(one.max_write_id, 0) >= _lowest(made)
        for one in others
        if one.visibility_txn_id != made.visibility_txn_id
    )


def _originals(state: AcidState) -> Iterator[str]:
    return (path for path in state.obsolete if not is_acid_directory(path.rpartition("/")[2]))


def _lowest(name: DirectoryName) -> int:
    return 0 if name.kind is DirectoryKind.BASE else name.min_write_id
