"""A realm with Hive 4's metastore and HDFS: keytabs, tickets, delegation tokens, and their failures."""

from __future__ import annotations

import io
import json
import re
import socket
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import orc

from airflow_hive_federation.clusters.acid_inputs import acid_inputs
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import (
    ConfigurationError,
    KdcUnreachableError,
    MetastoreAuthenticationError,
    MetastoreError,
    MetastoreProtocolError,
    MetastoreUnreachableError,
    RemoteUnavailableError,
    StoragePermissionError,
    StorageUnavailableError,
)
from airflow_hive_federation.ingest import HiveStreamingConnection, StrictDelimitedInputWriter
from airflow_hive_federation.metastore import (
    KerberosSettings,
    MetastoreClient,
    MetastorePool,
    MetastoreSettings,
    PlainSettings,
    hms_client,
    sasl_digest,
)
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.sasl_kerberos import Kerberos
from airflow_hive_federation.remotes.session import Remotes
from airflow_hive_federation.remotes.statement import Kind, Name
from airflow_hive_federation.replication.cycle import load_dump
from airflow_hive_federation.replication.dump.bootstrap import dump_bootstrap
from airflow_hive_federation.replication.dump.drain import begin_drain
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.verify.verify import verify_replica
from airflow_hive_federation.spark.copy_files import copy_plan
from airflow_hive_federation.spark.workers import ThisProcess
from airflow_hive_federation.storage.filesystem import parse_location
from airflow_hive_federation.storage.listing import list_directory
from airflow_hive_federation.storage.publishing import write_atomically
from airflow_hive_federation.storage.snapshots import (
    DiffEntry,
    Difference,
    create_snapshot,
    delete_snapshot,
    freezes_open_files,
    list_snapshots,
    snapshot_diff,
)
from airflow_hive_federation.storage.webhdfs import NameNodeWeb
from airflow_hive_federation.tables.write.statements import append
from airflow_hive_federation.waiting import PollPolicy, wait_until
from tests.support import kerberos_site as sites
from tests.support.gateway_front import gateway, work_through
from tests.support.gss_java import java_with_module
from tests.support.kdc import REALM
from tests.support.kerberos_site import BRIEF_S, SERVER, KerberosSite, require_gssapi
from tests.support.kerberos_spark import KerberosCycles, KerberosSpark, kerberos_spark
from tests.support.small_source import make_table, storage
from tests.support.spark_classes import QUICK
from tests.support.yarn import VARIABLE, Yarn, wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow
PROTECTIONS = ("authentication", "integrity", "privacy")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KerberosSite]:
    require_gssapi(tmp_path_factory)
    with sites.kerberos_site(tmp_path_factory.mktemp("kerberos")) as started:
        yield started


@pytest.fixture(scope="module", autouse=True)
def brief(site: KerberosSite) -> Iterator[tuple[MetastoreClient, float]]:
    """A connection whose ticket has a brief life, and the moment of the life's end.

    It is opened before the file's tests, so that one of them need not wait for that moment.
    """
    with MetastoreClient(site.settings("brief")) as client:
        assert "default" in client.list_databases()
        list_directory(site.base, options=site.by_keytab("brief"))
        yield client, end_of_life(BRIEF_S)


@pytest.fixture
def ticket(site: KerberosSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A function that obtains a ticket of alice's, as ``kinit`` does, in a cache of this test."""

    def obtain(*options: str) -> None:
        monkeypatch.setenv(
            "KRB5CCNAME", site.kdc.kinit("alice", tmp_path / "tickets", *options)["KRB5CCNAME"]
        )

    return obtain


def end_of_life(seconds: int) -> float:
    """Return a moment at which a ticket that was issued before has ended; lives have whole seconds."""
    return time.time() + seconds + 1


def wait_until_past(ended: float) -> None:
    assert wait_until(lambda: time.time() > ended, PollPolicy(first_s=0.1, factor=1, timeout_s=60))


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_by_keytab_and_by_token(site: KerberosSite, protection: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The metastore offers all protections, so the client's choice decides."""
    number = PROTECTIONS.index(protection)
    monkeypatch.setattr(Kerberos, "_LAYERS", (1 << number,))
    monkeypatch.setattr(sasl_digest, "_QOPS", (("auth", "auth-int", "auth-conf")[number],))
    # More than one frame there and back.
    texts = {str(number): "ü" * 3_000 for number in range(50)}
    name = f"by_{protection}"
    with MetastoreClient(site.settings()) as client:
        client.create_database(types.Database(name=name, parameters=texts))
        assert client.get_database(name).parameters == texts
        token = client.call("get_delegation_token", "alice", f"alice@{REALM}")
    with MetastoreClient(site.by_token(token)) as client:
        assert client.get_database(name).parameters == texts
        client.alter_database(name, types.Database(name=name, parameters={**texts, "by": "token"}))
        assert client.get_database(name).parameters == {**texts, "by": "token"}
        client.drop_database(name, delete_data=True)


def test_whom_the_far_side_sees(site: KerberosSite) -> None:
    """The metastore acts for its callers: HDFS shows who made a table's directory."""
    with MetastoreClient(site.settings()) as alice:
        alice.create_database(types.Database(name="seen"))
        make_table(alice, "seen", "hers")
        with pytest.raises(MetastoreError, match="not allowed to impersonate"):
            alice.call("get_delegation_token", "bob", f"alice@{REALM}")
    assert site.owner("warehouse/seen.db/hers") == "alice"
    site.hdfs.shell("-chmod", "777", "/secured/warehouse/seen.db")
    with MetastoreClient(site.settings("airflow")) as proxy:
        token = proxy.call("get_delegation_token", "bob", f"airflow@{REALM}")
    with MetastoreClient(site.by_token(token)) as bob:
        make_table(bob, "seen", "his")
    assert site.owner("warehouse/seen.db/his") == "bob"
    with MetastoreClient(site.settings("airflow")) as proxy:
        proxy.call("cancel_delegation_token", token)
    with (
        MetastoreClient(site.by_token(token)) as bob,
        pytest.raises(MetastoreAuthenticationError, match="DIGEST-MD5") as refused,
    ):
        bob.list_databases()
    assert token not in f"{refused.value} {refused.value!r} {bob.settings!r}"


def test_by_the_ticket_of_kinit(site: KerberosSite, ticket: Callable[..., None]) -> None:
    settings = site.by_ticket()
    with (
        MetastoreClient(settings) as client,
        pytest.raises(
            MetastoreAuthenticationError, match=f"hive/localhost@{REALM}.*no ticket is in the cache"
        ),
    ):
        client.list_databases()
    ticket()
    with MetastoreClient(settings) as client:
        assert "default" in client.list_databases()
    with hms_client(settings) as client:
        assert "default" in client.get_all_databases()


def test_snapshots_by_spnego(site: KerberosSite, ticket: Callable[..., None]) -> None:
    """Calls for snapshots go to the NameNode's web server, which takes its user from the token of SPNEGO."""
    root = f"{site.base}/snapshots"
    by_keytab, by_ticket = ({**login, **site.web()} for login in (site.by_keytab(), site.storage_options()))
    write_atomically(f"{root}/f", [b"1"], by_keytab)
    site.hdfs.admin("-allowSnapshot", parse_location(root).path)

    create_snapshot(root, "before", by_keytab)
    with pytest.raises(StoragePermissionError, match=r"no ticket is in the cache.*Run kinit"):
        create_snapshot(root, "after", by_ticket)
    stranger = {**site.by_keytab("airflow"), **site.web()}
    with pytest.raises(StoragePermissionError, match=r"user=airflow.*Grant it"):
        create_snapshot(root, "after", stranger)
    write_atomically(f"{root}/g", [b"2"], by_keytab)
    ticket()
    create_snapshot(root, "after", by_ticket)
    assert NameNodeWeb(root, by_ticket).call("GET", "GETHOMEDIRECTORY", "/") == {"Path": "/user/alice"}
    assert DiffEntry(kind=Difference.CREATE, path="g") in (
        snapshot_diff(root, "before", "after", by_ticket) or []
    )
    assert freezes_open_files(root, by_keytab) == freezes_open_files(root, by_ticket)
    for name in ("before", "after"):
        delete_snapshot(root, name, by_keytab)
    assert list_snapshots(root, by_keytab) == []


def test_a_remote_behind_kerberos(
    site: KerberosSite, source: EmbeddedMetastore, ticket: Callable[..., None], tmp_path: Path
) -> None:
    with MetastoreClient(site.settings()) as far:
        far.create_database(types.Database(name="guarded"))
        # The local metastore looks at a link's directory, and has no Kerberos for that of HDFS.
        make_table(far, "guarded", "orders", location=f"file:{tmp_path}/orders")
    ticket()
    where = f"'hive.metastore.uris' = '{site.uri}'"
    with Remotes(MetastoreSettings(uris=(source.uri,))) as remotes:
        with pytest.raises(RemoteUnavailableError, match="authentication"):
            remotes.run(f"CREATE REMOTE DATABASE behind_kerberos CONNECTED TO guarded {where}")
        remotes.run(
            f"CREATE REMOTE DATABASE behind_kerberos CONNECTED TO guarded {where} "
            f"'hive.metastore.kerberos.principal' = '{SERVER}'"
        )
        with MetastoreClient(MetastoreSettings(uris=(source.uri,))) as near:
            assert near.list_tables("behind_kerberos") == ["orders"]
        remotes.run("DROP REMOTE DATABASE behind_kerberos")


def test_a_gateway_before_it(site: KerberosSite) -> None:
    """An engine without Kerberos gets to it, as the gateway's principal."""
    upstream = {
        "uris": [site.uri],
        "kerberos_principal": SERVER,
        "client_principal": f"alice@{REALM}",
        "keytab": site.keytab("alice"),
    }
    work_through(upstream, "gateway_kerberos")
    with (
        gateway({"upstream": {**upstream, "client_principal": f"bob@{REALM}"}}) as stranger,
        MetastoreClient(MetastoreSettings(uris=(stranger.fronts[0].uri,))) as client,
        pytest.raises(MetastoreError, match=f"Kerberos to .*{REALM}"),
    ):
        client.list_databases()


@pytest.fixture
def spark_of_the_realm(site: KerberosSite, spark: SparkSession) -> Iterator[SparkSession]:
    """Spark, whose tasks know the realm."""
    environment = spark.sparkContext.environment
    environment["KRB5_CONFIG"] = str(site.kdc.configuration)
    yield spark
    del environment["KRB5_CONFIG"]


def stream(site: KerberosSite, table: str, *lines: str) -> None:
    """Stream delimited lines to a table in one transaction."""
    database, _, name = table.partition(".")
    connection = (
        HiveStreamingConnection.new_builder()
        .with_database(database)
        .with_table(name)
        .with_record_writer(StrictDelimitedInputWriter(field_delimiter=","))
        .with_conf(site.settings())
        .with_storage_options(site.by_keytab())
        .connect()
    )
    with connection, connection.transaction():
        for line in lines:
            connection.write(line)


def test_ingest_and_append_on_hdfs(site: KerberosSite, spark_of_the_realm: SparkSession) -> None:
    spark, settings, options = spark_of_the_realm, site.settings(), site.by_keytab()
    with MetastoreClient(settings) as client:
        client.create_database(types.Database(name="ledger"))
        make_table(client, "ledger", "t")
        stream(site, "ledger.t", "1,streamed")
        rows = spark.createDataFrame([(2, "appended")], "a int, b string").coalesce(1)
        assert append(spark, client, "ledger.t", rows, storage_options=options).inserted == 1
    assert site.owner("warehouse/ledger.db/t") == "alice"


def cache_of_jobs(site: KerberosSite) -> Path:
    return site.kdc.directory / "cache_of_jobs"


@pytest.fixture(scope="module")
def jobs(site: KerberosSite) -> Iterator[KerberosSpark]:
    """Spark with a login of its JVM, for jobs and rows; its ticket cache is empty at first."""
    with kerberos_spark(site.kdc.configuration, cache_of_jobs(site)) as started:
        yield started


def test_the_login_of_a_jobs_jvm_is_refused(site: KerberosSite, jobs: KerberosSpark) -> None:
    """The later tests log the same JVM in."""
    options, cache = site.by_renewed_keytab("alice"), cache_of_jobs(site)
    by_ticket = {name: value for name, value in options.items() if not name.startswith("kerberos_")}
    unnamed = {name: value for name, value in options.items() if name != "dfs.namenode.kerberos.principal"}
    other = "alice@OTHER.TEST"

    def refused(match: str, options: dict[str, Any], error: type[Exception] = StoragePermissionError) -> None:
        with pytest.raises(error, match=match):
            jobs.log_in(options)

    refused("does not know the NameNode's principal", unnamed, ConfigurationError)
    refused("by the ticket in KRB5CCNAME", by_ticket)
    site.kdc.kinit("alice", cache, "-l", "1s")
    wait_until_past(end_of_life(1))
    refused("by the ticket in KRB5CCNAME", by_ticket)
    refused(f"by bob@{REALM} with the keytab", {**options, "kerberos_principal": f"bob@{REALM}"})
    refused(f"by {other} with the keytab", {**options, "kerberos_principal": other})
    site.kdc.kinit("alice", cache)
    jobs.log_in(by_ticket)


@pytest.fixture(scope="module")
def replica(site: KerberosSite) -> Iterator[KerberosSite]:
    with site.another("replica") as started:
        yield started


def test_a_verification_on_yarn(
    site: KerberosSite, replica: KerberosSite, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python and the JVMs have delegation tokens of HDFS, which a keytab of the worker has given them."""
    options = site.by_keytab("alice")
    yarn = yarn_of_the_realm(site, options, monkeypatch)
    policy = ReplicationPolicy(
        name=lake,
        source_database=lake,
        dump_root=f"{replica.base}/lake/dumps",
        external_base=f"{replica.base}/lake/external",
        storage_options=options,
    )
    with (
        MetastorePool(site.settings(), 2) as source,
        MetastorePool(replica.settings(), 2) as target,
    ):
        with source.client() as client:
            start = begin_drain(client, lake)
        dump = dump_bootstrap(source, policy, start).dump

        def copy_here(plan: str, outcomes: str) -> None:
            copy_plan(ThisProcess(), plan, outcomes, options=options)

        load_dump(source, target, policy, dump, run_copy=copy_here)
        report = yarn.run_by_leaving(
            lambda hook: verify_replica(
                target,
                policy,
                dump,
                run_verify=hook.verify_runner("of_this_task"),
                source=source,
                row_digests=True,
            )
        )
    report.raise_if_different()
    rows = {table.name: (table.source_rows, table.target_rows) for table in report.tables}
    assert rows == {"outside": (1, 1), "t": (2, 2)}
    wait_for(yarn.all_ended)
    assert (yarn.users(), yarn.applications()) == (["alice"], [("FINISHED", "SUCCEEDED")])


def test_a_statement_on_yarn(site: KerberosSite, lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver reaches the metastore by the keytab that Spark has sent along, without a token of it."""
    options = site.by_keytab("alice")
    yarn = yarn_of_the_realm(site, options, monkeypatch)
    # The metastore knows this database. Spark's client, of Hive 2, reads no tables at a metastore of Hive 4.
    sql = f"SELECT a, b, current_database() FROM {lake}.t ORDER BY a"
    conf = {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.hive.metastore.uris": site.uri,
        "spark.hadoop.hive.metastore.sasl.enabled": "true",
        "spark.hadoop.hive.metastore.kerberos.principal": SERVER,
    }
    place = f"{site.base}/{lake}/statement"
    with (
        MetastoreClient(site.settings()) as client,
        acid_inputs(client, [f"{lake}.t"], "C1", options=options) as acid,
    ):
        statement = json.dumps({"database": lake, "sql": sql, "acid": acid})
        write_atomically(f"{place}.json", [statement.encode()], options)
        arguments = ["--statement", f"{place}.json", "--max-rows", "9"]
        answer = yarn.hook(**conf).submit("run-sql", arguments, report_uri=f"{place}/_report.json")
    assert answer["rows"] == [["1", "streamed", lake], ["2", "too", lake]]


@pytest.fixture(scope="module")
def lake(site: KerberosSite) -> str:
    """A database of alice's, with an ACID table and an external one."""
    with MetastoreClient(site.settings()) as client:
        client.create_database(types.Database(name="lake"))
        make_table(client, "lake", "t")
        stream(site, "lake.t", "1,streamed", "2,too")
        add_outside(client, site, site.by_keytab(), 7, "lake")
    return "lake"


def yarn_of_the_realm(site: KerberosSite, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Yarn:
    """Return a YARN for tasks whose connection has the storage options, and a home in HDFS for alice."""
    for command in (["-mkdir", "-p", "/user/alice"], ["-chown", "alice", "/user/alice"]):
        site.hdfs.shell(*command)
    extra = {"storage_options": options}
    monkeypatch.setenv("AIRFLOW_CONN_REALM", json.dumps({"conn_type": "hive_federation", "extra": extra}))
    # The archive of Spark's classes is of another Java.
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", QUICK)
    realm = f"-Djava.security.krb5.conf={site.kdc.configuration}"
    java = {"JAVA_HOME": str(java_with_module().home)}
    yarn = Yarn(site.hdfs, java=realm, env=java, storage_options=options, metastores=["realm"])
    monkeypatch.setenv(VARIABLE, yarn.connection("cluster"))
    return yarn


def test_a_database_is_replicated(
    site: KerberosSite,
    replica: KerberosSite,
    jobs: KerberosSpark,
    spark_of_the_realm: SparkSession,
    ticket: Callable[..., None],
) -> None:
    """Tickets of the replication's principal end between the bootstrap and the increment."""
    settings, options = site.settings(), site.by_renewed_keytab("alice")
    with MetastoreClient(settings) as client:
        client.create_database(types.Database(name="shop"))
        make_table(client, "shop", "t")
        rows = spark_of_the_realm.createDataFrame([(1, "appended"), (2, "deleted")], "a int, b string")
        assert append(spark_of_the_realm, client, "shop.t", rows.coalesce(1), storage_options=options)
        add_outside(client, site, options, 7)
        policy = ReplicationPolicy(
            name="shop",
            source_database="shop",
            dump_root=f"{replica.base}/dumps",
            external_base=f"{replica.base}/external",
            storage_options=site.by_renewed_keytab("replicator"),
        )
        with (
            MetastorePool(site.settings("replicator"), 2) as source,
            MetastorePool(replica.settings("replicator"), 2) as target,
        ):
            cycles = KerberosCycles(source, target, policy, spark_of_the_realm, process=jobs)
            cycles.cycle()
            ended = end_of_life(BRIEF_S)
            for path in ("warehouse/shop.db/t", "dumps/shop"):
                assert replica.owner(path) == "replicator"
            stream(site, "shop.t", "3,streamed")
            assert jobs.delete(settings, "shop.t", "a = 2", options) == 1
            add_outside(client, site, options, 8)
            wait_until_past(ended)
            issued = site.kdc.tickets_issued("replicator")
            cycles.cycle()
            assert not cycles.verify().differences
            assert site.kdc.tickets_issued("replicator") > issued
        ticket()
        read_as_remotes(site, replica, jobs, client)


def read_as_remotes(
    site: KerberosSite, replica: KerberosSite, jobs: KerberosSpark, client: MetastoreClient
) -> None:
    """Link the source's database to the other metastore of the realm, and read its rows by the link."""
    options = site.by_renewed_keytab("alice")
    # Tickets authenticate to the remote's metastore, and keytabs to the local one and HDFS.
    site.kdc.kinit("alice", cache_of_jobs(site))
    with Remotes(replica.settings()) as remotes:
        remotes.run(
            f"CREATE REMOTE DATABASE shop_link CONNECTED TO shop 'hive.metastore.uris' = '{site.uri}' "
            f"'hive.metastore.kerberos.principal' = '{SERVER}'"
        )
        rows = jobs.remote_rows(replica.settings(), "shop_link.t", options)
        assert rows == [(1, "appended"), (3, "streamed")]
        add_outside(client, site, options, 9)
        assert remotes.refresh(Kind.DATABASE, Name(database="shop_link")).partitions_added == 1
        rows = jobs.remote_rows(replica.settings(), "shop_link.outside", options)
        assert rows == [(7, "7", "7"), (8, "8", "8"), (9, "9", "9")]
        remotes.run("DROP REMOTE DATABASE shop_link")


def add_outside(
    client: MetastoreClient, site: KerberosSite, options: dict[str, Any], number: int, database: str = "shop"
) -> None:
    """Add a partition with a file to an external table, which is made at first."""
    root = f"{site.base}/{database}/outside"
    if "outside" not in client.list_tables(database):
        make_table(client, database, "outside", partitioned=True, location=root)
    file = io.BytesIO()
    orc.write_table(pa.table({"a": pa.array([number], pa.int32()), "b": [str(number)]}), file)
    write_atomically(f"{root}/p={number}/f", [file.getvalue()], options)
    place = storage(f"{root}/p={number}")
    client.add_partitions(
        [types.Partition(dbName=database, tableName="outside", values=[str(number)], sd=place, parameters={})]
    )


def test_a_keytab_renews_what_has_expired(site: KerberosSite, brief: tuple[MetastoreClient, float]) -> None:
    """A connection and a file system outlive the life of their tickets."""
    client, ended = brief
    options = site.by_keytab("brief")
    issued = site.kdc.tickets_issued("brief")
    assert issued
    wait_until_past(ended)
    assert "default" in client.list_databases()
    client.close()
    assert "default" in client.list_databases()
    renewed = site.kdc.tickets_issued("brief")
    assert renewed > issued
    list_directory(site.base, options=options)
    # Another option makes another client, which has to authenticate.
    list_directory(site.base, options={**options, "dfs.client.failover.sleep.max.millis": "1"})
    assert site.kdc.tickets_issued("brief") > renewed


def test_an_expired_ticket(site: KerberosSite, ticket: Callable[..., None]) -> None:
    ticket("-l", "1s")
    wait_until_past(end_of_life(1))
    with MetastoreClient(site.by_ticket()) as client:
        with pytest.raises(MetastoreAuthenticationError, match=r"the ticket has expired.*kinit") as caught:
            client.list_databases()
        assert (caught.value.principal, caught.value.realm) == (f"hive/localhost@{REALM}", REALM)
        with pytest.raises(StoragePermissionError, match="ticket"):
            list_directory(site.base, options=site.storage_options())
        ticket()
        assert "default" in client.list_databases()
        list_directory(site.base, options=site.storage_options())


def test_a_ticket_of_a_wrong_clock(site: KerberosSite, ticket: Callable[..., None], tmp_path: Path) -> None:
    ticket()
    cache = tmp_path / "tickets"
    data = cache.read_bytes()
    # The cache's head holds the difference between this machine's clock and the KDC's, when it was written.
    head, tag = struct.unpack_from("!HHHH", data)[:2], struct.unpack_from("!HH", data, 4)
    assert (head[0], tag) == (0x0504, (1, 8)), data[:16]
    cache.write_bytes(data[:8] + struct.pack("!ii", 3600, 0) + data[16:])
    with MetastoreClient(site.by_ticket()) as client:
        with pytest.raises(MetastoreAuthenticationError, match=r"clocks differ too much.*NTP"):
            client.list_databases()
        cache.write_bytes(data)
        assert "default" in client.list_databases()


def test_what_is_refused(site: KerberosSite) -> None:
    def refused(match: str, settings: MetastoreSettings, error: type[Exception] | None = None) -> None:
        with (
            MetastoreClient(settings) as client,
            pytest.raises(error or MetastoreAuthenticationError, match=match),
        ):
            client.list_databases()

    refused("the keytab /nowhere cannot be read", site.settings(keytab="/nowhere"))
    refused(f"as bob@{REALM}: the keytab .* has no key", site.settings(client_principal=f"bob@{REALM}"))
    other = site.settings(server_principal=f"hive/other.example.com@{REALM}")
    refused(f"hive/other.example.com@{REALM}.*does not know the server's principal", other)
    refused("realm|server's principal", site.settings(server_principal="hive/_HOST@OTHER.TEST"))
    refused("OTHER.TEST", site.settings(client_principal="alice@OTHER.TEST"))
    unusable = site.storage_options(kerberos_principal=f"alice@{REALM}", kerberos_keytab="/nowhere")
    with pytest.raises(StoragePermissionError, match=f"as alice@{REALM}: the keytab /nowhere cannot be read"):
        list_directory(site.base, options=unusable)
    bare = MetastoreSettings(uris=(site.uri,))
    refused("give the authentication", bare, MetastoreUnreachableError)
    with MetastoreClient(site.settings()) as client:
        assert "default" in client.list_databases()


@pytest.mark.parametrize("silent", [False, True], ids=["closed", "silent"])
def test_no_kdc_answers(
    site: KerberosSite, silent: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if silent:
            listener.listen(16)
        place = f"kdc = 127.0.0.1:{listener.getsockname()[1]}"
        elsewhere = tmp_path / "krb5.conf"
        text = site.kdc.configuration.read_text(encoding="utf-8")
        elsewhere.write_text(re.sub(r"kdc = 127\S+", place, text), encoding="utf-8")
        # Not the keytab of other tests, whose tickets this process keeps.
        keytab = tmp_path / "alice.keytab"
        keytab.write_bytes(Path(site.keytab("alice")).read_bytes())
        settings = replace(site.settings(keytab=str(keytab)), connect_timeout_s=1.0 if silent else 60.0)
        with MetastoreClient(settings) as client:
            monkeypatch.setenv("KRB5_CONFIG", str(elsewhere))
            with pytest.raises(KdcUnreachableError, match=f"realm {REALM} answers") as caught:
                client.list_databases()
            assert caught.value.retryable
            assert caught.value.realm == REALM
            # The library itself gives up much later, with a message of its own.
            assert ("no answer within 1 s" in str(caught.value)) is silent
            if not silent:
                login = {"kerberos_principal": f"alice@{REALM}", "kerberos_keytab": str(keytab)}
                with pytest.raises(StorageUnavailableError, match="no KDC of the realm answers"):
                    list_directory(site.base, options=site.storage_options(**login))
            monkeypatch.setenv("KRB5_CONFIG", str(site.kdc.configuration))
            client.settings = replace(settings, connect_timeout_s=60.0)
            assert "default" in client.list_databases()


def test_kerberos_where_nobody_asks_for_it(site: KerberosSite, source: EmbeddedMetastore) -> None:
    site.kdc.keytab("hive/127.0.0.1")
    settings = MetastoreSettings(
        uris=(source.uri,),
        authentication=KerberosSettings(server_principal=SERVER, keytab=site.keytab("alice")),
    )
    with MetastoreClient(settings) as client, pytest.raises(MetastoreProtocolError, match="SASL"):
        client.list_databases()


def test_by_password(tmp_path: Path) -> None:
    """Hive 4's own check of one user (``AuthFactory``: CONFIG), as LDAP's, PAM's and CUSTOM's go."""
    asked = {
        "metastore.authentication": "CONFIG",
        "metastore.authentication.config.username": "alice",
        "metastore.authentication.config.password": "open sesame",
        "metastore.execute.setugi": "false",
    }
    with EmbeddedMetastore.start("password", directory=tmp_path / "m", settings=asked) as metastore:

        def client(authentication: PlainSettings | None) -> MetastoreClient:
            return MetastoreClient(MetastoreSettings(uris=(metastore.uri,), authentication=authentication))

        with client(PlainSettings(user="alice", password="open sesame")) as known:
            assert known.list_databases() == ["default"]
            assert known.settings.effective_user() == "alice"
        wrong = PlainSettings(user="alice", password="sesame, open")
        with client(wrong) as unknown, pytest.raises(MetastoreAuthenticationError, match="PLAIN") as caught:
            unknown.list_databases()
        assert "sesame" not in f"{caught.value!r} {caught.value} {wrong!r}"
        with client(None) as silent, pytest.raises(MetastoreUnreachableError) as closed:
            silent.list_databases()
        assert "give the authentication" in str(closed.value.remedy)
        _work_by_password_through_a_gateway(metastore.uri, tmp_path / "secret")


def _work_by_password_through_a_gateway(uri: str, file: Path) -> None:
    """An engine without a password gets to the metastore, as the gateway's user."""
    upstream = {"uris": [uri], "user": "alice", "password_file": str(file)}
    file.write_text("open sesame\n", encoding="utf-8")
    work_through(upstream, "gateway_password")
    file.write_text("sesame, open\n", encoding="utf-8")
    with (
        gateway({"upstream": upstream}) as stranger,
        MetastoreClient(MetastoreSettings(uris=(stranger.fronts[0].uri,))) as client,
        pytest.raises(MetastoreError, match="PLAIN") as caught,
    ):
        client.list_databases()
    assert "sesame" not in f"{caught.value!r} {caught.value}"
