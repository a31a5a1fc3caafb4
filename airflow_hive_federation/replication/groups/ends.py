"""Orders the ends of a group's transactions as the source ended them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from airflow_hive_federation.model.events import Event, TxnEnded


def ended_in(events: Iterable[Event], concerned: Collection[int]) -> Iterator[int]:
    """Yield the transactions that ended by events, in the source's order, if they concern a member.

    :param events: events of the source, of all databases.
    :param concerned: the transactions that ended for a member.
    """
    return (event.txn_id for event in events if isinstance(event, TxnEnded) and event.txn_id in concerned)


def ends_of_group(
    order: Iterable[int], members: Iterable[Iterable[int]], still_open: Collection[int]
) -> list[int]:
    """Return the transactions that a group ends on the target, in the source's order.

    A transaction whose end no event records comes first. A transaction that is over for one member, because
    its tables there were dropped, may be open for another one: it ends when it has ended for all.

    :param order: transactions in the source's order, by its events.
    :param members: for each member, the transactions that ended.
    :param still_open: transactions that are open for some member.
    """
    ended = {txn for ends in members for txn in ends} - set(still_open)
    known = [txn for txn in dict.fromkeys(order) if txn in ended]
    return [*sorted(ended.difference(known)), *known]
