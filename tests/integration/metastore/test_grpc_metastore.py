"""A replication, a remote, the doctor, hmsclient and a hook work over gRPC as over Thrift."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_hive_federation.cli.main import main
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.errors import MetastoreUnreachableError, RemoteUnavailableError
from airflow_hive_federation.gateway.grpc.server import GrpcFront
from airflow_hive_federation.hooks.metastore import HiveMetastoreHook
from airflow_hive_federation.metastore import MetastoreClient, MetastorePool, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.remotes.session import Remotes
from airflow_hive_federation.replication.failover import start_failover, switch_roles
from airflow_hive_federation.replication.policy import ReplicationPolicy
from tests.support.cycling import Scheduled
from tests.support.small_source import connected, make_small_source
from tests.support.transports import grpc_gateway, tls_and_token

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATABASE = "over_grpc"
ROWS = "over_grpc_rows"
COPY = "over_grpc_copy"
ACID = "STORED AS ORC TBLPROPERTIES ('transactional'='true')"


@pytest.fixture(scope="module")
def far(source: EmbeddedMetastore) -> EmbeddedMetastore:
    make_small_source(source, DATABASE)
    return source


@pytest.fixture(scope="module")
def front(far: EmbeddedMetastore) -> Iterator[GrpcFront]:
    with grpc_gateway(far.uri) as front:
        yield front


@pytest.mark.slow
def test_a_replication_and_its_failover(
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    hive_sql_source: HiveSql,
    hive_sql_target: HiveSql,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    """Both ends behind gateways, the source's with TLS and tokens."""
    for statement in (
        f"CREATE DATABASE {ROWS}",
        f"CREATE TABLE {ROWS}.t (id int) PARTITIONED BY (p string) {ACID}",
        f"INSERT INTO {ROWS}.t PARTITION (p) VALUES (1, 'a'), (2, 'b')",
    ):
        hive_sql_source.execute(statement)
    policy = ReplicationPolicy(
        name="over_grpc",
        source_database=ROWS,
        target_database=COPY,
        dump_root=f"file:{tmp_path}/dumps",
        external_base=f"file:{target.external_warehouse}/over_grpc",
    )
    with ExitStack() as stack:
        source_settings = stack.enter_context(tls_and_token(source.uri, tmp_path / "tokens"))
        front = stack.enter_context(grpc_gateway(target.uri))
        target_settings = MetastoreSettings(uris=(f"grpc://127.0.0.1:{front.port}",))
        site = Scheduled(
            stack.enter_context(MetastorePool(source_settings, 4)),
            stack.enter_context(MetastorePool(target_settings, 4)),
            policy,
            spark,
        )
        first = site.cycle()
        assert site.jobs.count("copy") == 1
        hive_sql_source.execute(f"INSERT INTO {ROWS}.t PARTITION (p) VALUES (3, 'later')")
        hive_sql_source.execute(f"DELETE FROM {ROWS}.t WHERE id = 1")
        second = site.cycle()
        assert second.dump != first.dump
        assert site.cycle().idle
        site.verify().raise_if_different()
        with connected(target) as client:
            assert client.list_partition_names(COPY, "t") == ["p=a", "p=b", "p=later"]
        start_failover(site.source, site.target, policy)
        site.cycle()
        report = switch_roles(site.source, site.target, policy)
        back = Scheduled(site.target, site.source, report.policy, spark)
        hive_sql_target.execute(f"INSERT INTO {COPY}.t PARTITION (p) VALUES (4, 'back')")
        back.cycle()
        back.verify().raise_if_different()
        with connected(source) as client:
            assert client.list_partition_names(ROWS, "t") == ["p=a", "p=b", "p=back", "p=later"]


def test_a_remote(far: EmbeddedMetastore, target: EmbeddedMetastore, front: GrpcFront) -> None:
    where = f"'metastore.uris' = 'grpc://127.0.0.1:{front.port}'"
    with Remotes(MetastoreSettings(uris=(target.uri,))) as remotes, connected(target) as client:
        client.create_database(types.Database(name="near_grpc"))
        remotes.run(f"CREATE REMOTE TABLE near_grpc.ext CONNECTED TO {DATABASE}.ext VIA 'grpc' {where}")
        made = client.get_table("near_grpc", "ext")
        assert made.sd is not None
        with connected(far) as there:
            original = there.get_table(DATABASE, "ext")
        assert original.sd is not None
        assert (made.sd.location, made.sd.cols) == (original.sd.location, original.sd.cols)
        remotes.run("REFRESH REMOTE TABLE near_grpc.ext; DROP REMOTE TABLE near_grpc.ext")


def test_a_remote_behind_a_gateway_that_is_down(target: EmbeddedMetastore) -> None:
    statement = f"""CREATE REMOTE DATABASE lost_grpc CONNECTED TO {DATABASE}
        VIA 'grpc' 'metastore.uris' = 'grpc://127.0.0.1:1'"""
    with (
        Remotes(MetastoreSettings(uris=(target.uri,))) as remotes,
        pytest.raises(RemoteUnavailableError, match="lost_grpc"),
    ):
        remotes.run(statement)


def test_the_command_line_and_the_hook(
    front: GrpcFront, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"grpc://127.0.0.1:{front.port}"
    main(["doctor", uri, "--json"])
    assert '"capabilities"' in capsys.readouterr().out
    monkeypatch.setenv(
        "AIRFLOW_CONN_HIVE_GRPC", json.dumps({"conn_type": "hive_federation", "extra": {"uris": uri}})
    )
    hook = HiveMetastoreHook("hive_grpc")
    works, message = hook.test_connection()
    assert works, message
    with closing(hook.get_conn()) as hms:
        assert hms.get_table(DATABASE, "ext").tableName == "ext"


def test_a_gateway_outlives_its_metastore(target: EmbeddedMetastore) -> None:
    """A gateway that is down has its own error; a write that was not sent has no unknown outcome."""
    with (
        grpc_gateway("thrift://127.0.0.1:1") as lame,
        grpc_gateway(target.uri) as well,
        MetastoreClient(MetastoreSettings(uris=(f"grpc://127.0.0.1:{lame.port}",))) as client,
    ):
        with pytest.raises(MetastoreUnreachableError, match="does not answer"):
            client.create_database(types.Database(name="never"))
        uris = (f"grpc://127.0.0.1:{lame.port}", f"grpc://127.0.0.1:{well.port}")
        with MetastoreClient(MetastoreSettings(uris=uris)) as other:
            other.create_database(types.Database(name="after_all"))
    with connected(target) as client:
        assert {"after_all"} <= set(client.list_databases())
        assert "never" not in client.list_databases()
