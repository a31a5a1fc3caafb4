"""A metastore of Hive 3.1 is refused as a target before anything is written there."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_federation.errors import MetastoreError, NoSuchObjectError, UnsupportedMethodError
from airflow_hive_federation.replication import failover
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.database import find_target
from airflow_hive_federation.replication.replica.markers import TargetState

POLICY = ReplicationPolicy(name="p", source_database="db", dump_root="file:/nowhere")


def client(lacking: set[str], denied: MetastoreError | None = None) -> Any:
    """Return a client of a metastore without the database, and without some calls.

    :param denied: raised by all other calls.
    """

    def call(method: str, _: Any) -> Any:
        if method in lacking:
            raise UnsupportedMethodError(f"Invalid method name: '{method}'")
        if denied is not None:
            raise denied
        return SimpleNamespace(maxWriteId=0)

    def get_database(name: str) -> Any:
        raise NoSuchObjectError(name)

    return SimpleNamespace(call=call, get_database=get_database)


def pool(of: Any) -> Any:
    """Return a pool of one client."""
    return SimpleNamespace(client=lambda: nullcontext(of))


def test_a_metastore_that_cannot_count_write_ids_is_no_target() -> None:
    assert find_target(client(set()), POLICY).state is TargetState.ABSENT
    with pytest.raises(UnsupportedMethodError, match="target database db cannot hold a replica") as caught:
        find_target(client({"get_max_allocated_table_write_id"}), POLICY)
    assert "Hive 4" in caught.value.remedy


def test_a_failover_names_the_older_metastore_as_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    source = client({"get_max_allocated_table_write_id"})
    monkeypatch.setattr(
        failover, "_source_lock", lambda *_: nullcontext(SimpleNamespace(target=pool(source)))
    )
    monkeypatch.setattr(failover, "_has_switched", lambda *_: False)
    monkeypatch.setattr(failover, "_refuse_replica", lambda *_: None)
    with pytest.raises(UnsupportedMethodError, match="of source database db cannot hold a replica") as caught:
        failover.mark_source(pool(source), pool(None), POLICY)
    assert "stop its metastore, and take the target over" in caught.value.remedy
    assert "Use a metastore of Hive 4" not in str(caught.value)


def test_a_gateway_that_hides_tables_does_not_make_its_metastore_an_older_one() -> None:
    denied = MetastoreError("db. is not allowed")
    assert find_target(client(set(), denied), POLICY).state is TargetState.ABSENT
