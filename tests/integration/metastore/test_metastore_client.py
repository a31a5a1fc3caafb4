"""The client against a real Hive 4.2 metastore, over every transport."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import (
    AlreadyExistsError,
    InvalidOperationError,
    MetastoreError,
    MetastoreProtocolError,
    MetastoreServerError,
    MetastoreUnreachableError,
    NoSuchObjectError,
    NoSuchTransactionError,
    TransactionAbortedError,
    UnsupportedMethodError,
)
from airflow_hive_federation.metastore import (
    MetastoreClient,
    MetastorePool,
    MetastoreSettings,
    examine,
    hms_client,
)
from airflow_hive_federation.metastore.calls import partitions as partition_calls
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.wire import from_bytes, from_json, to_bytes, to_json
from airflow_hive_federation.model.partitions import DEFAULT_PARTITION, partition_name
from tests.support.http_metastore import metastore_over_http
from tests.support.transports import over
from tests.support.wire_structs import DATABASE, column_statistics, insert_lock, partition, table


@pytest.fixture(scope="module", params=["tcp", "http", "ssh", "grpc_tls_token", "grpc_ssh"])
def settings(
    request: pytest.FixtureRequest, source: EmbeddedMetastore, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MetastoreSettings]:
    """Settings for each transport; Thrift over TLS and gRPC alone have files of tests of their own."""
    directory = tmp_path_factory.mktemp(request.param)
    with over(request.param, source, directory, over_http=lambda: metastore_over_http(directory)) as settings:
        yield settings


@pytest.fixture(scope="module")
def client(settings: MetastoreSettings) -> Iterator[MetastoreClient]:
    with MetastoreClient(settings) as client:
        client.drop_database(DATABASE, delete_data=True, cascade=True, if_exists=True)
        client.create_database(types.Database(name=DATABASE, description="é", parameters={"a": ""}))
        yield client
        client.drop_database(DATABASE, delete_data=True, cascade=True)


def test_databases(client: MetastoreClient) -> None:
    assert DATABASE in client.list_databases("metastore_*")
    database = client.get_database(DATABASE)
    assert (database.description, database.parameters, database.ownerName) == ("é", {"a": ""}, "tester")
    database.parameters = {"b": "c"}
    client.alter_database(DATABASE, database)
    assert client.get_database(DATABASE).parameters == {"b": "c"}
    with pytest.raises(AlreadyExistsError, match=DATABASE):
        client.create_database(types.Database(name=DATABASE))
    with pytest.raises(NoSuchObjectError, match="no_such"):
        client.get_database("no_such")
    with pytest.raises(NoSuchObjectError):
        client.drop_database("no_such", delete_data=False)
    client.drop_database("no_such", delete_data=False, if_exists=True)


def test_an_acid_table_with_constraints_stays_one(client: MetastoreClient) -> None:
    rules = types.SQLAllTableConstraints(
        primaryKeys=[
            types.SQLPrimaryKey(
                table_db=DATABASE, table_name="acid", column_name="id", key_seq=1, pk_name="pk",
                enable_cstr=False, validate_cstr=False, rely_cstr=True,
            )
        ],
        notNullConstraints=[
            types.SQLNotNullConstraint(
                catName="hive", table_db=DATABASE, table_name="acid", column_name="name", nn_name="nn",
                enable_cstr=True, validate_cstr=False, rely_cstr=True,
            )
        ],
    )  # fmt: skip
    client.create_table(table("acid"), constraints=rules)
    made = client.get_table(DATABASE, "acid")
    assert (made.tableType, (made.parameters or {})["transactional"]) == ("MANAGED_TABLE", "true")
    constraints = client.get_table_constraints(DATABASE, "acid")
    assert [key.pk_name for key in constraints.primaryKeys or []] == ["pk"]
    assert [key.nn_name for key in constraints.notNullConstraints or []] == ["nn"]
    assert client.list_tables(DATABASE, kind="MANAGED_TABLE") == ["acid"]
    with pytest.raises(NoSuchObjectError, match="nothing"):
        client.get_table(DATABASE, "nothing")
    client.drop_table(DATABASE, "nothing", delete_data=True, if_exists=True)
    with pytest.raises(InvalidOperationError, match="not empty"):
        client.drop_database(DATABASE, delete_data=True)


def test_reading_and_writing_back_changes_nothing(client: MetastoreClient) -> None:
    skewed = table("skewed", external=True)
    assert skewed.sd is not None
    skewed.sd.skewedInfo = types.SkewedInfo(
        skewedColNames=["id", "name"],
        skewedColValues=[["1", "a"], ["2", "b"]],
        skewedColValueLocationMaps={("1", "a"): "file:/x/1", ("2", "b"): "file:/x/2"},
    )
    skewed.sd.storedAsSubDirectories = True
    client.create_table(skewed)
    first = client.get_table(DATABASE, "skewed")
    assert first.sd is not None
    assert first.sd.skewedInfo == skewed.sd.skewedInfo
    client.alter_table(DATABASE, "skewed", first, environment={"DO_NOT_UPDATE_STATS": "true"})
    assert client.get_table(DATABASE, "skewed") == first
    assert from_json(types.Table, to_json(first)) == from_bytes(types.Table, to_bytes(first)) == first
    assert client.get_tables(DATABASE, ["skewed", "nothing"])[0].sd == first.sd


def test_a_change_on_condition(client: MetastoreClient) -> None:
    client.create_table(table("conditional", external=True))
    definition = client.get_table(DATABASE, "conditional")
    definition.parameters = {**(definition.parameters or {}), "mark": "1"}
    client.alter_table(DATABASE, "conditional", definition)
    definition.parameters["mark"] = "2"
    client.alter_table(DATABASE, "conditional", definition, expected_parameter=("mark", "1"))
    definition.parameters["mark"] = "3"
    with pytest.raises(MetastoreServerError, match="has been modified"):
        client.alter_table(DATABASE, "conditional", definition, expected_parameter=("mark", "1"))
    assert (client.get_table(DATABASE, "conditional").parameters or {})["mark"] == "2"


def test_partitions(client: MetastoreClient, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [types.FieldSchema(name="day", type="string"), types.FieldSchema(name="h", type="int")]
    client.create_table(table("parts", keys=keys))
    made = client.get_table(DATABASE, "parts")
    days = ["2026-01-01", "a=b/c d%", "é"]
    client.add_partitions([partition(made, day, str(h)) for day in days for h in range(7)], batch_size=4)
    client.add_partitions([partition(made, days[0], "0"), partition(made, days[0], "7")])
    with pytest.raises(AlreadyExistsError):
        client.add_partitions([partition(made, days[0], "0")], if_not_exists=False)

    names = client.list_partition_names(DATABASE, "parts")
    assert len(names) == 22
    at_once = {
        tuple(partition.values or []): partition for partition in client.iter_partitions(DATABASE, "parts")
    }
    by_name = client.iter_partitions(DATABASE, "parts", names=names, batch_size=5)
    assert at_once == {tuple(partition.values or []): partition for partition in by_name}
    _in_pages(monkeypatch, 3)
    in_pages = list(client.iter_partitions(DATABASE, "parts"))
    assert len(in_pages) == len(names)
    assert at_once == {tuple(partition.values or []): partition for partition in in_pages}
    assert set(at_once) == {(day, str(h)) for day in days for h in range(7)} | {(days[0], "7")}

    gone = [name for name in names if name.endswith("h=3")]
    client.drop_partitions(DATABASE, "parts", [*gone, "day=never/h=1"], delete_data=True)
    left = client.iter_partitions(DATABASE, "parts", names=[*gone, "day=2026-01-01/h=7"])
    assert [partition.values for partition in left] == [["2026-01-01", "7"]]
    with pytest.raises(NoSuchObjectError):
        client.drop_partitions(DATABASE, "parts", gone, delete_data=True, if_exists=False)

    changed = next(client.iter_partitions(DATABASE, "parts", names=["day=2026-01-01/h=7"]))
    changed.parameters = {**(changed.parameters or {}), "v": "new"}
    client.alter_partitions(DATABASE, "parts", [changed])
    again = next(client.iter_partitions(DATABASE, "parts", names=["day=2026-01-01/h=7"]))
    assert (again.parameters or {})["v"] == "new"


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("string", ["a", "B", "é", "z", "it's", "10", "9", DEFAULT_PARTITION]),
        ("int", ["-3", "9", "10", "007", DEFAULT_PARTITION]),
        ("date", ["2026-01-09", "2026-01-10", "1969-12-31", DEFAULT_PARTITION]),
        ("varchar(9)", ["a", "b", "c"]),
        ("timestamp", ["2026-01-09 00:00:00", "2026-01-10 10:00:00"]),
    ],
)
def test_pages_have_all_partitions(
    kind: str, values: list[str], client: MetastoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By conditions that a metastore understands, and by name where it does not."""
    name = f"paged_{kind[:4]}"
    client.create_table(table(name, keys=[types.FieldSchema(name="k", type=kind)]))
    made = client.get_table(DATABASE, name)
    client.add_partitions([partition(made, value) for value in values])
    at_once = list(client.iter_partitions(DATABASE, name))
    _in_pages(monkeypatch, 2)
    in_pages = list(client.iter_partitions(DATABASE, name))
    assert len(at_once) == len(in_pages) == len(values)
    assert all(partition in in_pages for partition in at_once)
    # Of known names: those that a range holds for, and those among which lie many others.
    monkeypatch.setattr(partition_calls, "PARTITIONS_PER_CALL", 1)
    names = sorted(client.list_partition_names(DATABASE, name))
    for wanted_names in (names, names[1:], [names[0], names[-1]], [*names[:2], "k=gone"]):
        partitions = client.get_partitions_of(DATABASE, name, wanted_names)
        wanted = [
            partition
            for partition in at_once
            if partition_name(["k"], partition.values or []) in wanted_names
        ]
        assert sorted(map(repr, partitions)) == sorted(map(repr, wanted)), wanted_names


def _in_pages(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(partition_calls, "ONE_PAGE", 0)
    monkeypatch.setattr(partition_calls, "page_size", lambda *_, **__: size)


def test_partitions_of_several_write_ids(client: MetastoreClient) -> None:
    client.create_table(table("written", keys=[types.FieldSchema(name="day", type="string")]))
    made = client.get_table(DATABASE, "written")
    partitions = [partition(made, str(number)) for number in range(6)]
    for number, wire in enumerate(partitions):
        wire.writeId = number // 2
    client.add_partitions(partitions)
    for write_ids in ([0, 1, 2, 0, 1, 2], [None] * 6):
        read = list(client.iter_partitions(DATABASE, "written"))
        for wire, write_id in zip(read, write_ids, strict=True):
            wire.writeId = write_id
            wire.parameters = {**(wire.parameters or {}), "v": str(write_id)}
        client.alter_partitions(DATABASE, "written", read)
        again = list(client.iter_partitions(DATABASE, "written"))
        assert [(partition.parameters or {})["v"] for partition in again] == [
            str(write_id) for write_id in write_ids
        ]
    for delete_data in (False, True):
        client.drop_table(DATABASE, "written", delete_data=delete_data)
        client.create_table(table("written", keys=[types.FieldSchema(name="day", type="string")]))
        assert client.list_partition_names(DATABASE, "written") == []
        client.add_partitions([partition(made, "again")])


def test_column_statistics(client: MetastoreClient, monkeypatch: pytest.MonkeyPatch) -> None:
    client.create_table(table("stats", external=True))
    client.set_column_statistics([column_statistics("stats")])
    of_columns = client.get_table_column_statistics(DATABASE, "stats")
    assert of_columns.tableStats == column_statistics("stats").statsObj
    with_stats = client.get_table(DATABASE, "stats", with_column_stats=True)
    assert with_stats.colStats is not None
    assert with_stats.colStats.statsObj == of_columns.tableStats

    client.create_table(table("stats_p", external=True, keys=[types.FieldSchema(name="d", type="string")]))
    made = client.get_table(DATABASE, "stats_p")
    client.add_partitions([partition(made, value) for value in ("x", "y z", "w")])
    names = ["d=x", "d=y z"]
    client.set_column_statistics([column_statistics("stats_p", name) for name in names])
    statistics = client.get_partitions_column_statistics(DATABASE, "stats_p", [*names, "d=w"], batch_size=2)
    assert {name: len(columns) for name, columns in statistics.items()} == {"d=x": 1, "d=y z": 1}

    def attached() -> dict[str, Any]:
        partitions = client.iter_partitions(DATABASE, "stats_p", with_column_stats=True)
        return {
            (partition.values or [""])[0]: partition.colStats and partition.colStats.statsObj
            for partition in partitions
        }

    at_once = attached()
    _in_pages(monkeypatch, 1)
    assert at_once == attached()
    assert at_once["x"] == statistics["d=x"]


def test_functions(client: MetastoreClient) -> None:
    function = types.Function(
        functionName="twice",
        dbName=DATABASE,
        className="a.b.Twice",
        ownerName="tester",
        ownerType=types.PrincipalType.USER,
        functionType=types.FunctionType.JAVA,
        resourceUris=[types.ResourceUri(resourceType=types.ResourceType.JAR, uri="file:/a.jar")],
    )
    client.create_function(function)
    (read,) = client.get_functions(DATABASE)
    assert (read.className, read.resourceUris) == (function.className, function.resourceUris)
    client.drop_function(DATABASE, "twice")
    client.drop_function(DATABASE, "twice", if_exists=True)
    assert client.get_functions(DATABASE) == []


def test_transactions_write_ids_and_locks(client: MetastoreClient) -> None:
    client.create_table(table("txn"))
    name = f"{DATABASE}.txn"
    first, second = client.open_txns(2, agent_info="a test")
    assert {first, second} <= set(client.get_open_txns().open_txns or [])
    write_ids = client.allocate_table_write_ids(DATABASE, "txn", [first, second])
    assert write_ids == client.allocate_table_write_ids(DATABASE, "txn", [first, second])
    component = insert_lock("txn")
    lock = client.lock([component], txn_id=first)
    assert lock.state == types.LockState.ACQUIRED
    assert client.check_lock(lock.lockid or 0, txn_id=first).state == types.LockState.ACQUIRED
    assert [lock.txnid for lock in client.show_locks(database=DATABASE, table="txn")] == [first]
    beat = client.heartbeat_txn_range(first, second)
    assert (beat.aborted, beat.nosuch) == ([], [])

    client.commit_txn(first)
    client.commit_txn(first)
    # Without a table to write to, housekeeping would forget the transaction once it is aborted.
    client.lock([component], txn_id=second)
    client.abort_txns([second])
    with pytest.raises(TransactionAbortedError):
        client.commit_txn(second)
    with pytest.raises(NoSuchTransactionError):
        client.commit_txn(1 << 40)
    valid = client.get_valid_write_ids([name])[name]
    assert valid.writeIdHighWaterMark == write_ids[second]
    assert valid.invalidWriteIds == [write_ids[second]]


def test_write_ids_are_seeded(client: MetastoreClient) -> None:
    client.create_table(table("seeded"))
    name = f"{DATABASE}.seeded"
    client.repl_tbl_writeid_state(DATABASE, "seeded", f"{name}:9:9223372036854775807::")
    valid = client.get_valid_write_ids([name])[name]
    assert (valid.writeIdHighWaterMark, valid.invalidWriteIds) == (9, [])


def test_events(client: MetastoreClient) -> None:
    before = client.get_current_notification_event_id()
    for name in ("e1", "e2", "e3"):
        client.create_table(table(name, external=True))
    events = list(client.iter_notification_events(before, database=DATABASE, batch_size=2))
    created = [event.tableName for event in events if event.eventType == "CREATE_TABLE"]
    assert created == ["e1", "e2", "e3"]
    last = client.get_current_notification_event_id()
    assert [event.eventId for event in client.iter_notification_events(last - 1, up_to=last)] == [last]
    assert list(client.iter_notification_events(last, up_to=last)) == []


def test_methods_that_hive_4_dropped(client: MetastoreClient) -> None:
    if (client.uri or "").startswith("grpc"):
        # The gateway answers old clients by the call that took its place.
        assert client.call("get_table", DATABASE, "acid").sd == client.get_table(DATABASE, "acid").sd
        return
    with pytest.raises(UnsupportedMethodError, match="Invalid method name: 'get_table'"):
        client.call("get_table", DATABASE, "acid")


def test_the_doctor_finds_an_embedded_metastore_fit(client: MetastoreClient) -> None:
    findings = {finding.name: finding for finding in examine(client)}
    assert {name for name, finding in findings.items() if finding.state in ("error", "unknown")} == set()
    assert findings["version"].detail.startswith("Hive 4.")
    assert findings["cleaner beside transactions"].state == "ok"


def test_hmsclient(client: MetastoreClient, settings: MetastoreSettings) -> None:
    client.create_table(table("hms", external=True))
    with hms_client(settings) as hms:
        assert DATABASE in hms.get_all_databases()
        assert hms.get_table(DATABASE, "hms").sd.cols[1].comment == "Straße"
        assert [table.tableName for table in hms.get_table_objects_by_name(DATABASE, ["hms"])] == ["hms"]
        with pytest.raises(Exception, match="nothing table not found"):
            hms.get_table(DATABASE, "nothing")


def test_a_metastore_that_restarts(own_metastores: Any) -> None:
    metastore = own_metastores("restarting")
    with MetastorePool(MetastoreSettings(uris=(metastore.uri,)), 1) as pool:
        with pool.client() as client:
            assert client.list_databases() == ["default"]
        metastore.kill()
        metastore.restart()
        with pool.client() as client:
            client.create_database(types.Database(name="after"))
            assert client.list_databases() == ["after", "default"]


@pytest.mark.parametrize("scheme", ["http", "thrift+tls"])
def test_another_transport_than_the_servers(source: EmbeddedMetastore, scheme: str) -> None:
    uri = source.uri.replace("thrift", scheme)
    settings = MetastoreSettings(uris=(uri,), connect_timeout_s=5, call_timeout_s=5)
    with MetastoreClient(settings) as client, pytest.raises(MetastoreError) as caught:
        client.list_databases()
    assert isinstance(caught.value, MetastoreProtocolError | MetastoreUnreachableError)
    assert uri in str(caught.value)
