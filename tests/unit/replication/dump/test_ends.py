"""The leaders of the transactions that ended in a cycle, after loads that were killed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_hive_federation.replication.dump.ends import merged_ends, separate_ends
from airflow_hive_federation.replication.dump.event_fold import EventFold
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import DumpKind
from airflow_hive_federation.replication.format.tables import EndedTransaction
from airflow_hive_federation.replication.format.unfinished import COPY_PLAN, UnfinishedLoads
from tests.support.dumps import POLICY, manifest

LOADED = "file:/dumps/p/0-0"
#: Two transactions that wrote to different tables.
FOLDED = EventFold(from_id=1, to_id=9, writes={"a": [(7, 1)], "b": [(8, 1)]}, ends=[(7, 1), (8, 0)])


@pytest.fixture
def unfinished(tmp_path: Path) -> UnfinishedLoads:
    return UnfinishedLoads(policy=replace(POLICY, dump_root=f"file:{tmp_path}"), loaded=LOADED)


def kill(unfinished: UnfinishedLoads, *ends: EndedTransaction, still_open: tuple[int, ...] = ()) -> None:
    killed = DumpDirectory(f"{unfinished.policy.directory}/1-5-1")
    killed.write_ends(ends)
    open_writes = {txn: {"b": 1} for txn in still_open}
    killed.finish_dump(manifest(kind=DumpKind.INCREMENT, previous=LOADED, open_writes=open_writes))
    killed.add_lines(COPY_PLAN, [])


def leaders(ends: Iterator[EndedTransaction]) -> list[tuple[int, bool, int]]:
    return [(end.txn, end.committed, end.leader) for end in ends]


def test_transactions_are_merged_except_in_a_group(unfinished: UnfinishedLoads) -> None:
    assert leaders(merged_ends(FOLDED, unfinished, ())) == [(7, True, 7), (8, False, 7)]
    assert leaders(separate_ends(FOLDED)) == [(7, True, 7), (8, False, 8)]


def test_a_transaction_that_an_earlier_cycle_has_opened_leads_itself(unfinished: UnfinishedLoads) -> None:
    assert leaders(merged_ends(FOLDED, unfinished, {8})) == [(7, True, 7), (8, False, 8)]


def test_a_transaction_that_a_killed_load_has_opened_leads_itself(unfinished: UnfinishedLoads) -> None:
    kill(unfinished, still_open=(8,))
    assert leaders(merged_ends(FOLDED, unfinished, ())) == [(7, True, 7), (8, False, 8)]


def test_no_transaction_joins_a_run_of_a_killed_load(unfinished: UnfinishedLoads) -> None:
    kill(unfinished, EndedTransaction(7, True, 7))
    assert leaders(merged_ends(FOLDED, unfinished, ())) == [(7, True, 7), (8, False, 8)]
