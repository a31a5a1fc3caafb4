"""Lists the transactions that ended in a cycle, as an increment's dump stores them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain

from airflow_hive_federation.replication.dump.event_fold import EventFold
from airflow_hive_federation.replication.dump.merging import Merging, leaders
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.tables import EndedTransaction
from airflow_hive_federation.replication.format.unfinished import UnfinishedLoads


def separate_ends(folded: EventFold) -> Iterator[EndedTransaction]:
    """Yield the transactions of the cycle's events that ended, each as its own leader.

    The members of a group of policies know different transactions, so none of theirs are merged.
    """
    return (EndedTransaction(txn, bool(committed), txn) for txn, committed in folded.ends)


def merged_ends(
    folded: EventFold, unfinished: UnfinishedLoads, open_before: Collection[int]
) -> Iterator[EndedTransaction]:
    """Yield the transactions of the cycle's events that ended, each with its leader (see :mod:`.merging`).

    :param unfinished: a load that was killed may have opened transactions that had not ended by then.
    :param open_before: transactions that earlier cycles left open.
    """
    opened_alone = chain(open_before, *map(open_transactions, unfinished.dumps))
    mergings = [merging_of(dump) for dump in unfinished.dumps]
    leaders_of_ends = leaders((txn for txn, _ in folded.ends), folded.writes, set(opened_alone), mergings)
    for (txn, committed), leader in zip(folded.ends, leaders_of_ends, strict=True):
        yield EndedTransaction(txn, bool(committed), leader)


def open_transactions(dump: DumpDirectory) -> Iterator[int]:
    """Yield the transactions of the source that had not ended at a dump."""
    return iter(dump.manifest().open_writes)


def merging_of(dump: DumpDirectory) -> Merging:
    """Return the merging of the transactions that a dump lists as ended."""
    return Merging((end.txn, end.leader) for end in dump.ends())
