"""Lists the transactions that ended in a cycle, as an increment's dump stores them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain

from airflow_hive_federation.replication.dump.increment_plan import EventFold
from airflow_hive_federation.replication.dump.merging import Merging, leaders
from airflow_hive_federation.replication.format.directory import DumpDirectory, table_file
from airflow_hive_federation.replication.format.unfinished import unfinished_loads
from airflow_hive_federation.replication.policy import ReplicationPolicy

#: This file holds the transactions that ended, in the source's order: for each, whether it was committed, and
#: its leader on the target (see :mod:`.merging`).
ENDS = "ends.jsonl"


def ends_of(
    policy: ReplicationPolicy, loaded: str, folded: EventFold, open_before: Collection[int]
) -> Iterator[tuple[int, bool, int]]:
    """Yield the lines of :data:`ENDS` for the transactions of the cycle's events.

    :param loaded: URI of the dump from which the target was last loaded.
    :param open_before: transactions that earlier cycles left open.
    """
    # A load that was killed may have opened transactions that had not ended by then.
    unfinished = list(unfinished_loads(policy, loaded))
    opened_alone = chain(open_before, *map(open_transactions, unfinished))
    mergings = [merging_of(dump) for dump in unfinished]
    leaders_of_ends = leaders((txn for txn, _ in folded.ends), folded.writes, set(opened_alone), mergings)
    for (txn, committed), leader in zip(folded.ends, leaders_of_ends, strict=True):
        yield txn, bool(committed), leader


def open_transactions(dump: DumpDirectory) -> Iterator[int]:
    """Yield the transactions of the source that had not ended at a dump."""
    return iter(dump.manifest().open_writes)


def merging_of(dump: DumpDirectory) -> Merging:
    """Return the merging of the transactions that a dump lists as ended."""
    return Merging((txn, leader) for txn, _, leader in dump.read_lines(ENDS))


def writes_file(table: str) -> str:
    """Return the name of a dump's file with a table's pairs of transaction and write id."""
    return table_file("writes", table, ".jsonl")
