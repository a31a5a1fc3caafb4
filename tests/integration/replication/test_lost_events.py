"""A source that has forgotten its events, and one restored from a backup; both real metastores."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import SourceWentBackError, UnexplainedRemovalError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.replication.cycle import dump_next_increment, load_dump
from airflow_hive_federation.replication.dump.bootstrap import dump_bootstrap
from airflow_hive_federation.replication.dump.drain import begin_drain
from airflow_hive_federation.replication.dump.increment_summary import IncrementSummary
from airflow_hive_federation.replication.load.replay import Replay
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.waiting import PollPolicy, wait_until
from tests.support.incrementing import run_copy
from tests.support.kills import pool
from tests.support.small_source import commit_files, connected, make_small_source, make_table

pytestmark = pytest.mark.slow

DATABASE = "forgetful"
FORGETFUL = {
    "metastore.event.db.listener.timetolive": "1s",
    "metastore.event.db.listener.clean.interval": "1s",
    "metastore.event.db.listener.clean.startup.wait.interval": "0s",
}


class Site:
    """A source whose directory is backed up and restored, and the shared target."""

    def __init__(self, root: Path, target: EmbeddedMetastore) -> None:
        self.root, self.target = root, target
        self.policy = ReplicationPolicy(
            name=DATABASE,
            source_database=DATABASE,
            dump_root=f"file:{root}/dumps",
            external_base=f"file:{target.external_warehouse}/forgetful_base",
        )

    @contextmanager
    def source(self, settings: dict[str, str] | None = None) -> Iterator[EmbeddedMetastore]:
        with EmbeddedMetastore.start("forgetful", directory=self.root / "site", settings=settings) as made:
            yield made

    def bootstrap(self, source: EmbeddedMetastore) -> None:
        with connected(source) as client:
            start = begin_drain(client, DATABASE)
        with pool(source.uri) as source_pool, pool(self.target.uri) as target_pool:
            load_dump(
                source_pool,
                target_pool,
                self.policy,
                dump_bootstrap(source_pool, self.policy, start).dump,
                run_copy=run_copy,
            )

    def cycle(self, source: EmbeddedMetastore) -> IncrementSummary:
        with pool(source.uri) as source_pool, pool(self.target.uri) as target_pool:
            dumped = dump_next_increment(source_pool, target_pool, self.policy)
            if not dumped.idle:
                load_dump(source_pool, target_pool, self.policy, dumped.dump, run_copy=run_copy)
        return dumped


@pytest.fixture
def site(tmp_path: Path, target: EmbeddedMetastore) -> Iterator[Site]:
    yield Site(tmp_path, target)
    with connected(target) as client:
        client.drop_database(DATABASE, delete_data=True, cascade=True, if_exists=True)


def ids(client: MetastoreClient) -> dict[str, Any]:
    return {
        str(table.tableName): table.id for table in client.get_tables(DATABASE, client.list_tables(DATABASE))
    }


def high_watermark(client: MetastoreClient, table: str) -> int | None:
    name = f"{DATABASE}.{table}"
    return client.get_valid_write_ids([name])[name].writeIdHighWaterMark


def test_events_that_are_gone_and_a_source_that_was_restored(site: Site) -> None:
    with site.source() as source:
        make_small_source(source, DATABASE)
        with connected(source) as client:
            for name in ("quiet", "replaced", "dropped"):
                make_table(client, DATABASE, name, partitioned=True)
                commit_files(client, DATABASE, name)
        site.bootstrap(source)
    with connected(site.target) as client:
        before = ids(client)
    shutil.copytree(site.root / "site", site.root / "backup")

    with site.source(FORGETFUL) as source, connected(source) as client:
        commit_files(client, DATABASE, "acid")
        commit_files(client, DATABASE, "acid")
        for name in ("replaced", "dropped"):
            client.drop_table(DATABASE, name, delete_data=True)
        make_table(client, DATABASE, "replaced")
        make_table(client, DATABASE, "new")

        def forgotten() -> bool:
            return not list(client.iter_notification_events(0))

        assert wait_until(forgotten, PollPolicy(first_s=0.5, longest_s=1.0, timeout_s=120.0))
        # Dropped or hidden: no event tells.
        with pytest.raises(UnexplainedRemovalError, match=r"1 table.*: dropped") as unexplained:
            site.cycle(source)
        assert unexplained.value.tables == ["dropped"]
        with connected(site.target) as other:
            assert ids(other) == before
        bounded = site.policy
        site.policy = replace(bounded, max_unexplained_tables=1)
        report = site.cycle(source)
        site.policy = bounded
        assert report.dropped == ["dropped"]
        assert (report.lost, report.idle) == (True, False)
        commit_files(client, DATABASE, "quiet")
        site.cycle(source)
        with connected(site.target) as other:
            after = ids(other)
            for table in ("acid", "quiet"):
                assert high_watermark(other, table) == high_watermark(client, table)
            assert client.get_open_txns().open_txns == []
            assert Replay(other, site.policy).sweep([]) == []
    # Brought forward where it was; only the table that is another one now was made anew.
    changed = {name for name in before if name in after and before[name] != after[name]}
    assert (changed, after.keys() - before.keys()) == ({"replaced"}, {"new"})
    deltas = sorted(path.name for path in site.target.warehouse.glob(f"{DATABASE}.db/acid/p=one/delta_*"))
    assert deltas == [f"delta_{write_id:07d}_{write_id:07d}_0000" for write_id in (1, 2, 3, 4)]

    # Ids went back, and then on.
    shutil.rmtree(site.root / "site")
    shutil.move(site.root / "backup", site.root / "site")
    with site.source() as source, pytest.raises(SourceWentBackError):
        site.cycle(source)
