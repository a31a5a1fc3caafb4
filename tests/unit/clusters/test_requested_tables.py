"""Names of tables and databases that the metastore does not have."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from airflow_hive_federation.clusters import primary
from airflow_hive_federation.clusters.assignment import assign_tables
from airflow_hive_federation.clusters.copies.copying import copy_to_cluster, drop_copies
from airflow_hive_federation.clusters.keep_rules import read_rule
from airflow_hive_federation.clusters.keeping import keep_current
from airflow_hive_federation.clusters.moving import move_copies
from airflow_hive_federation.clusters.primary import change_primary
from airflow_hive_federation.clusters.registry import ClusterRegistry
from airflow_hive_federation.errors import NoSuchObjectError
from airflow_hive_federation.metastore.idl import types
from tests.support.two_clusters import two_clusters

REGISTRY = two_clusters("/one", "/two")


class Empty:
    """A metastore without databases, with the errors of a client."""

    def get_database(self, name: str) -> types.Database:
        raise NoSuchObjectError(f"get_database_req: no {name}", server_message=f"no {name}")

    def get_table(self, database: str, name: str) -> types.Table:
        raise NoSuchObjectError(f"get_table_req: no {database}.{name}", server_message="no table")

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_, **__: None


def no_copy(_plan: str, _outcomes: str) -> None:
    raise AssertionError("nothing is copied")


ACTIONS: dict[str, Callable[[Any, ClusterRegistry], object]] = {
    "copy": lambda client, registry: copy_to_cluster(client, registry, "D.t", "C2", no_copy),
    "drop-copy": lambda client, registry: drop_copies(client, registry, "D.t", "C2"),
    "move-copy": lambda client, registry: move_copies(client, registry, "D.t", "C1", "C2", run_copy=no_copy),
    "keep": lambda client, registry: keep_current(client, registry, read_rule("all of D.t in C2"), no_copy),
    "set-primary": lambda client, registry: change_primary(client, registry, "D.t", "C2"),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_a_missing_table_is_named_with_a_remedy(action: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(primary, "_locked", lambda *_: nullcontext())
    with pytest.raises(
        NoSuchObjectError, match=r"^There is no table d\.t: get_table_req: no d\.t\. Remedy: "
    ) as caught:
        ACTIONS[action](Empty(), REGISTRY)
    assert (caught.value.table, caught.value.server_message) == ("d.t", "no table")


def test_a_missing_database_is_named_with_a_remedy() -> None:
    client: Any = Empty()
    with pytest.raises(
        NoSuchObjectError, match=r"^There is no database D: get_database_req: no D\. Remedy: "
    ):
        assign_tables(client, REGISTRY, databases=["D"])
