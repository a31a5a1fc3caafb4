"""Lists the transactions that ended in a cycle, as an increment's dump stores them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain

from airflow_hive_federation.replication.dump.event_fold import EventFold
from airflow_hive_federation.replication.dump.merging import Merging, leaders
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.tables import EndedTransaction
from airflow_hive_federation.replication.format.unfinished import unfinished_loads
from airflow_hive_federation.replication.policy import ReplicationPolicy


def ends_of(
    policy: ReplicationPolicy, loaded: str, folded: EventFold, open_before: Collection[int]
) -> Iterator[EndedTransaction]:
    """Yield the transactions of the cycle's events that ended, each with its leader (see :mod:`.merging`).

    :param loaded: URI of the dump from which the target was last loaded.
    :param open_before: transactions that earlier cycles left open.
    """
    if policy.group:
        # The members of a group know different transactions, so each transaction leads itself.
        for txn, committed in folded.ends:
            yield EndedTransaction(txn, bool(committed), txn)
        return
    # A load that was killed may have opened transactions that had not ended by then.
    unfinished = list(unfinished_loads(policy, loaded))
    opened_alone = chain(open_before, *map(open_transactions, unfinished))
    mergings = [merging_of(dump) for dump in unfinished]
    leaders_of_ends = leaders((txn for txn, _ in folded.ends), folded.writes, set(opened_alone), mergings)
    for (txn, committed), leader in zip(folded.ends, leaders_of_ends, strict=True):
        yield EndedTransaction(txn, bool(committed), leader)


def open_transactions(dump: DumpDirectory) -> Iterator[int]:
    """Yield the transactions of the source that had not ended at a dump."""
    return iter(dump.manifest().open_writes)


def merging_of(dump: DumpDirectory) -> Merging:
    """Return the merging of the transactions that a dump lists as ended."""
    return Merging((end.txn, end.leader) for end in dump.ends())
