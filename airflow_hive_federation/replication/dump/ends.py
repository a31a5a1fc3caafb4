"""The transactions that ended in a cycle, as an increment's dump has them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain

from airflow_hive_federation.replication.dump.increment_plan import EventFold
from airflow_hive_federation.replication.dump.merging import Merging, leaders
from airflow_hive_federation.replication.format.directory import DumpDirectory, table_file
from airflow_hive_federation.replication.format.unfinished import unfinished_loads
from airflow_hive_federation.replication.policy import ReplicationPolicy

#: Transactions that ended, in the source's order; whether they were committed; which one leads each on the
#: target (see :mod:`.merging`).
ENDS = "ends.jsonl"


def ends_of(
    policy: ReplicationPolicy, loaded: str, folded: EventFold, open_before: Collection[int]
) -> Iterator[tuple[int, bool, int]]:
    """Yield the lines of :data:`ENDS` for the transactions that events tell of.

    :param loaded: URI of the dump that the target was loaded from last.
    :param open_before: transactions that earlier cycles left open.
    """
    # A load that was killed has opened transactions that had not ended by then.
    unfinished = list(unfinished_loads(policy, loaded))
    alone = chain(open_before, *map(open_transactions, unfinished))
    begun = [merging_of(dump) for dump in unfinished]
    led = leaders((txn for txn, _ in folded.ends), folded.writes, set(alone), begun)
    for (txn, committed), leader in zip(folded.ends, led, strict=True):
        yield txn, bool(committed), leader


def open_transactions(dump: DumpDirectory) -> Iterator[int]:
    """Transactions of the source that had not ended at a dump."""
    return (txn for txn, _ in dump.manifest().get("open_writes", ()))


def merging_of(dump: DumpDirectory) -> Merging:
    """Return the transactions among a dump's ends that stand for others."""
    return Merging((txn, leader) for txn, _, leader in dump.read_lines(ENDS))


def writes_file(table: str) -> str:
    """Where a dump has a table's pairs of transaction and write id."""
    return table_file("writes", table, ".jsonl")
