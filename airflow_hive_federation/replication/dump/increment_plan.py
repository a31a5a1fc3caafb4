"""Plans the work of a cycle on each table, from the fold of its events. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from airflow_hive_federation.errors import EventsLostError
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.replication.dump.contents import cut_below_open
from airflow_hive_federation.replication.dump.event_fold import EventFold
from airflow_hive_federation.replication.dump.pairs import Pairs
from airflow_hive_federation.replication.format.kinds import TableWork
from airflow_hive_federation.replication.replica.position import TableState

#: Stand-ins for transactions whose events are lost have ids from here on, above all transactions of a source.
_LOST = 1 << 62
_ALLOCATED_PER_CALL = 10_000


@dataclass(frozen=True, kw_only=True)
class TablePlan:
    """The work of a cycle on one table.

    :param write_ids: write ids that readers of the target may see after the cycle; ``None`` for tables
        without.
    :param seed: highest write id with which a new table starts.
    :param writes: pairs of transaction and write id to replay, contiguous and ascending by write id.
    :param reached: highest write id of the target's table after the cycle; 0 for tables without.
    :param partitions: the partitions that events name, besides those that the writes concern; ``None`` if all
        partitions are compared.
    """

    work: TableWork
    write_ids: ValidWriteIds | None = None
    seed: int = 0
    writes: Sequence[tuple[int, int]] = ()
    reached: int = 0
    partitions: frozenset[str] | None = None


def plan_table(
    name: str,
    source: ValidWriteIds | None,
    target: TableState | None,
    folded: EventFold,
    *,
    always: bool = False,
    replace: bool = False,
) -> TablePlan:
    """Plan the work of the cycle on a table of the source.

    :param source: its write ids at the cycle's moment, if it is transactional.
    :param target: state of the target's table of that name.
    :param always: examine it without an event: an external table with other files, or a table to be repaired.
    :param replace: make it anew, as a whole.
    :raises EventsLostError: write ids that a new table needs are in no event.
    """
    if target is None:
        return _new_table(TableWork.CREATE, name, source, folded)
    if replace or folded.created.get(name, 0) > target.loaded_id:
        return _new_table(TableWork.REPLACE, name, source, folded)
    looked_at = always or folded.is_doubtful(name) or name in folded.looked_at
    if source is None:
        return TablePlan(work=TableWork.CONTINUE if looked_at else TableWork.NOTHING)
    writes = _above(target.high_watermark, folded.writes.get(name, ()))
    if folded.is_doubtful(name):
        writes = _with_lost(writes, target.high_watermark, source)
    known = _contiguous(writes, target.high_watermark)
    reached = known[-1][1] if known else target.high_watermark
    if len(known) < len(writes) or _committed_above(source, reached):
        return _new_table(TableWork.REPLACE, name, source, folded)
    visible = _seen(source, reached, folded, name)
    if not (looked_at or known or _ended(target.open_ids, visible)):
        return TablePlan(work=TableWork.NOTHING)
    whole = always or folded.is_doubtful(name)
    return TablePlan(
        work=TableWork.CONTINUE,
        write_ids=visible,
        writes=known,
        reached=reached,
        partitions=None if whole else folded.partitions_named.get(name, frozenset()),
    )


def lost_ends(plans: Iterable[TablePlan]) -> list[tuple[int, int]]:
    """Return the stand-ins of transactions without events, which end first."""
    stand_ins = {txn for plan in plans for txn, _ in plan.writes if txn > _LOST}
    return [(txn, 1) for txn in sorted(stand_ins)]


def allocation_runs(
    writes: Sequence[tuple[int, int]], target_txns: Mapping[int, int]
) -> Iterator[list[tuple[int, int]]]:
    """Cut a table's writes into runs that one call may allocate.

    The metastore sorts the target's transactions of a call by id and numbers them from the first write id on
    (``AllocateTableWriteIdsFunction``). So within a call, write ids, the source's transactions and the
    target's must all ascend together; otherwise write ids belong to the wrong transactions.

    :param target_txns: the source's transaction → the target's.
    """
    run: list[tuple[int, int]] = []
    for txn, write in writes:
        ascends = run and txn > run[-1][0] and target_txns[txn] > target_txns[run[-1][0]]
        if run and (not ascends or len(run) == _ALLOCATED_PER_CALL):
            yield run
            run = []
        run.append((txn, write))
    if run:
        yield run


def _new_table(work: TableWork, name: str, source: ValidWriteIds | None, folded: EventFold) -> TablePlan:
    if source is None:
        return TablePlan(work=work)
    seed = cut_below_open(source).high_watermark
    writes = _above(seed, folded.writes.get(name, ()))
    known = _contiguous(writes, seed)
    reached = known[-1][1] if known else seed
    if _committed_above(source, reached):
        raise EventsLostError(
            f"Table {name} has write ids above {reached} whose transactions no event records.",
            remedy="Run the cycle again when its oldest open transaction has ended.",
            table=name,
            event_id=folded.to_id,
        )
    return TablePlan(
        work=work,
        write_ids=_seen(source, reached, folded, name),
        seed=seed,
        writes=known,
        reached=reached,
    )


def _seen(source: ValidWriteIds, reached: int, folded: EventFold, name: str) -> ValidWriteIds:
    """Return the write ids that readers of the target may see at highest write id ``reached``.

    A metastore's high watermark may be below the last write ids (``TxnHandler.getValidWriteIdsForTable``): it
    does not count open ones, nor forgotten ones, such as aborted ones. The target counts them, because they
    were committed there without any rows.
    """
    if reached <= source.high_watermark:
        return source.cut(reached)
    above = range(source.high_watermark + 1, reached + 1)
    txns = {write: txn for txn, write in folded.writes.get(name, ()) if write in above}
    still_open = [write for write in above if txns.get(write) in folded.open_writes]
    ended = [write for write in above if write not in still_open]
    top = ended[-1] if ended else source.high_watermark
    writers = set(txns.values())
    committed = {txn for txn, was_committed in folded.ends if was_committed and txn in writers}
    open_ids = (*source.open_ids, *(write for write in still_open if write <= top))
    return ValidWriteIds(
        table=source.table,
        high_watermark=top,
        open_ids=open_ids,
        aborted_ids=(*source.aborted_ids, *(write for write in ended if txns.get(write) not in committed)),
        min_open_id=open_ids[0] if open_ids else None,
    )


def _above(write_id: int, writes: Sequence[tuple[int, int]]) -> Pairs:
    return Pairs((txn, write) for txn, write in writes if write > write_id)


def _with_lost(writes: Sequence[tuple[int, int]], after: int, source: ValidWriteIds) -> Pairs:
    """Fill in the write ids that no event contains and that are not open: their transactions have ended.

    Those transactions are lost with the events, so each write id gets a stand-in. An open write id gets none,
    because no later cycle would recognize its end.
    """
    known = {write: txn for txn, write in writes}
    open_ids = set(source.open_ids)
    lost = [write_id for write_id in range(after + 1, source.high_watermark + 1) if write_id not in open_ids]
    filled = {**{write: _LOST + write for write in lost}, **known}
    return Pairs((txn, write) for write, txn in sorted(filled.items()))


def _contiguous(writes: Pairs, after: int) -> Pairs:
    """Return the writes that follow ``after`` without a hole."""
    count = 0
    for _, write in writes:
        if write != after + count + 1:
            break
        count += 1
    return writes[:count]


def _committed_above(source: ValidWriteIds, write_id: int) -> bool:
    count = sum(1 for invalid_id in source.invalid_ids if invalid_id > write_id)
    return source.high_watermark - write_id > count


def _ended(open_ids: Sequence[int], seen: ValidWriteIds) -> bool:
    return not set(open_ids) <= set(seen.open_ids)
