"""Several replicas of one source, a replica of a replica, and a replica beside its source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.replication.cycle import (
    dump_next_increment,
    is_published,
    load_dump,
    load_idle,
)
from airflow_hive_federation.replication.dump.bootstrap import dump_bootstrap
from airflow_hive_federation.replication.dump.drain import begin_drain
from airflow_hive_federation.replication.policy import ReplicationPolicy
from tests.support.incrementing import run_copy
from tests.support.kills import pool
from tests.support.small_source import commit_files, connected, make_small_source


class Link:
    """A policy from one metastore to another, or to itself."""

    def __init__(
        self, source: EmbeddedMetastore, target: EmbeddedMetastore, root: Path, *, databases: tuple[str, str]
    ) -> None:
        self.source, self.target = source, target
        self.policy = ReplicationPolicy(
            name=databases[1],
            source_database=databases[0],
            target_database=databases[1],
            dump_root=f"file:{root}/dumps",
            external_base=f"file:{root}/{databases[1]}",
        )

    def cycle(self) -> bool:
        """A cycle; whether there was nothing to do."""
        with pool(self.source.uri) as source_pool, pool(self.target.uri) as target_pool:
            with target_pool.client() as client:
                published = is_published(client, self.policy)
            if not published:
                with source_pool.client() as client:
                    start = begin_drain(client, self.policy.source_database)
                dump = dump_bootstrap(source_pool, self.policy, start).dump
            else:
                dumped = dump_next_increment(source_pool, target_pool, self.policy)
                dump = dumped.dump
                if dumped.idle:
                    load_idle(target_pool, self.policy, dumped.event_id)
                    return True
            load_dump(source_pool, target_pool, self.policy, dump, run_copy=run_copy)
        return False

    def drop(self) -> None:
        with connected(self.target) as client:
            name = self.policy.target_database
            client.drop_database(name, delete_data=True, cascade=True, if_exists=True)


def contents(metastore: EmbeddedMetastore, database: str) -> tuple[int | None, list[str], dict[str, str]]:
    """High watermark and deltas of the ACID table, and the database's own parameters."""
    with connected(metastore) as client:
        name = f"{database}.acid"
        high = client.get_valid_write_ids([name])[name].writeIdHighWaterMark
        parameters = client.get_database(database).parameters or {}
    root = metastore.warehouse / f"{database}.db" / "acid"
    deltas = sorted(str(path.relative_to(root)) for path in root.glob("*/delta_*"))
    return high, deltas, {key: value for key, value in parameters.items() if key in {"a", "team"}}


@pytest.fixture
def links(source: EmbeddedMetastore, target: EmbeddedMetastore, tmp_path: Path) -> Iterator[list[Link]]:
    make_small_source(source, "top")
    ways = (
        (source, target, ("top", "spoke_one")),
        (source, target, ("top", "spoke_two")),
        (source, source, ("top", "top_beside")),
        (target, source, ("spoke_one", "chained")),
    )
    links = [Link(first, other, tmp_path, databases=databases) for first, other, databases in ways]
    yield links
    for link in links:
        link.drop()
    with connected(source) as client:
        client.drop_database("top", delete_data=True, cascade=True)
    place = source.external_warehouse / "top_ext"
    (place / "data").unlink()
    place.rmdir()


def test_hub_and_spoke_a_chain_and_one_metastore(links: list[Link]) -> None:
    source = links[0].source
    assert [link.cycle() for link in links] == [False] * 4
    for number in range(2):
        with connected(source) as client:
            commit_files(client, "top", "acid")
            commit_files(client, "top", "acid")
            database = client.get_database("top")
            database.parameters = {**(database.parameters or {}), "team": str(number)}
            client.alter_database("top", database)
        assert [link.cycle() for link in links] == [False] * 4
        expected = contents(source, "top")
        assert expected[0] == 4 + 2 * number
        assert expected[2]["team"] == str(number)
        for link in links:
            assert contents(link.target, link.policy.target_database) == expected, link.policy.name
        # What the loads themselves have done comes back to none of them, in one metastore or down a chain.
        for _ in range(2):
            assert [link.cycle() for link in links] == [True] * 4
