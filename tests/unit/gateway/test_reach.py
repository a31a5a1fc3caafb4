"""Calls that reach beyond the databases that they name: patterns, privileges, ids and other catalogs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from airflow_hive_federation.catalog.hive import keeps_events
from airflow_hive_federation.gateway.dispatch import Gateway
from airflow_hive_federation.gateway.federation.owners import RemoteNames
from airflow_hive_federation.gateway.methods import ACCESS, Access
from airflow_hive_federation.gateway.reach import BY_ID, BY_PATTERN, OF_CONNECTORS, OF_PRIVILEGES
from airflow_hive_federation.gateway.rules import Exposure, Rule, Rules
from airflow_hive_federation.gateway.thrift_front import ThriftFront
from airflow_hive_federation.gateway.thrift_settings import ThriftSettings
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.struct import Struct
from tests.support.federated import Federated
from tests.support.gateways import Clients, Gateways, Peers, RawClient, Raws
from tests.support.metastore_peers import Thrift

T = types.HiveObjectType
#: Everything but ``payroll``: names that are patterns match these rules, too.
ALL_BUT_PAYROLL = Rules((Rule(access=tuple(Access), databases=("*", "!payroll")),))
NO_TEMPORARY_TABLES = Rules(exposure=Exposure(tables=("*", "!*.tmp_*")))


# -- which methods -------------------------------------------------------------------------------------------


def _structs(kind: type[Struct], above: tuple[type[Struct], ...] = ()) -> Iterator[type[Struct]]:
    yield kind
    for field in kind.thrift_spec.values():
        inner = field[2] if len(field) == 4 else None
        while isinstance(inner, tuple):
            inner = inner[1]
        if isinstance(inner, type) and issubclass(inner, Struct) and inner not in above:
            yield from _structs(inner, (*above, inner))


def _with(kind: type[Struct]) -> set[str]:
    return {method for method in ACCESS if kind in _structs(message_types(method)[0])}


def test_all_methods_about_privileges_compactions_and_tables_of_a_database_are_known() -> None:
    assert _with(types.HiveObjectRef) == OF_PRIVILEGES
    # It finds the columns by the names of database, table and partition.
    assert _with(types.CompactionInfoStruct) - {"find_columns_with_stats"} == BY_ID
    assert {method for method in ACCESS if method.startswith("get_table_objects")} == BY_PATTERN
    # Hive changes neither the type of a database nor its connector.
    definitions = _with(types.Database) | _with(types.CreateDatabaseRequest)
    assert definitions - {"alter_database", "alter_database_req"} == set(OF_CONNECTORS)


# -- patterns ------------------------------------------------------------------------------------------------


def tables_of(database: str, **request: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return a new client's call and an old one's for tables."""
    names = request.get("tblNames", ["wages"])
    return [
        ("get_table_objects_by_name_req", {"req": types.GetTablesRequest(dbName=database, **request)}),
        ("get_table_objects_by_name", {"dbname": database, "tbl_names": names}),
    ]


@pytest.mark.parametrize(
    "name", ["payrol.", "public|payroll", "*", "", "@hive#payrol.", "@hive#!", "payrol[l]"]
)
def test_patterns_of_databases_are_refused(peer: Peers, gateway: Gateways, raw: Raws, name: str) -> None:
    served: list[str] = []
    run = gateway(peer(Thrift(lambda method, _args: served.append(method))).uri, rules=ALL_BUT_PAYROLL)
    for method, arguments in tables_of(name, tblNames=["wages"]):
        answer = raw(run).ask(method, **arguments)
        assert "as a pattern of several databases" in str(answer), (method, answer)
    assert served == []


@pytest.mark.parametrize("arguments", [{}, {"req": types.GetTablesRequest(tblNames=["wages"])}])
def test_tables_of_no_database_are_refused(
    peer: Peers, gateway: Gateways, raw: Raws, arguments: dict[str, Any]
) -> None:
    run = gateway(peer(Thrift(lambda *_: None)).uri, rules=ALL_BUT_PAYROLL)
    answer = raw(run).ask("get_table_objects_by_name_req", **arguments)
    assert "as a pattern of several databases" in str(answer)


def test_names_with_an_underscore_or_a_hyphen_are_none(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    def serve(_method: str, args: Any) -> Any:
        return types.GetTablesResult(tables=[types.Table(dbName=args.req.dbName, tableName="t")])

    run = gateway(peer(Thrift(serve)).uri, rules=ALL_BUT_PAYROLL)
    for name in ("a_b", "a-b", "A1", "a b"):
        request = types.GetTablesRequest(dbName=name, tblNames=["t"])
        assert "success" in raw(run).ask("get_table_objects_by_name_req", req=request)


def tables(*names: tuple[str | None, str | None], **fields: Any) -> types.GetTablesResult:
    return types.GetTablesResult(
        tables=[types.Table(dbName=database, tableName=table, **fields) for database, table in names]
    )


def shown(answer: dict[str, Any]) -> list[tuple[str | None, str | None]]:
    return [(table.dbName, table.tableName) for table in answer["success"].tables]


def test_tables_of_a_pattern_are_those_that_the_caller_may_see(
    peer: Peers, gateway: Gateways, raw: Raws
) -> None:
    given = tables(("public", "open"), ("Public", "TMP_x"), ("payroll", "wages"), ("@hive#public", "b"))
    served = Thrift(lambda *_: given)
    request = types.GetTablesRequest(dbName="public", tablesPattern="*")
    for rules, left in (
        (NO_TEMPORARY_TABLES, [("public", "open"), ("payroll", "wages"), ("@hive#public", "b")]),
        (ALL_BUT_PAYROLL, [("public", "open"), ("Public", "TMP_x"), ("@hive#public", "b")]),
    ):
        run = gateway(peer(served).uri, rules=rules)
        assert shown(raw(run).ask("get_table_objects_by_name_req", req=request)) == left


def test_an_old_call_for_tables_is_filtered_as_well(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    """Metastores before Hive 4 have it, and newer ones get its successor."""
    given = tables(("public", "open"), ("payroll", "wages"))
    for served in (Thrift(lambda *_: given.tables), Thrift(lambda *_: given, {"get_table_objects_by_name"})):
        connection = raw(gateway(peer(served).uri, rules=ALL_BUT_PAYROLL))
        answer = connection.ask("get_table_objects_by_name", dbname="public", tbl_names=["open"])
        assert [table.dbName for table in answer["success"]] == ["public"]


def test_a_view_is_shown_whatever_it_reads(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    """``get_table_req`` shows its whole definition, too."""
    reads = types.CreationMetadata(catName="hive", dbName="public", tblName="m", tablesUsed=["payroll.wages"])
    served = Thrift(lambda *_: tables(("public", "m"), creationMetadata=reads))
    request = types.GetTablesRequest(dbName="public", tblNames=["m"])
    run = gateway(peer(served).uri, rules=ALL_BUT_PAYROLL)
    assert shown(raw(run).ask("get_table_objects_by_name_req", req=request)) == [("public", "m")]


def test_a_client_may_request_some_fields_only(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    served: list[Any] = []
    run = gateway(peer(Thrift(lambda *_: served[-1])).uri, rules=NO_TEMPORARY_TABLES)
    by_pattern = types.GetTablesRequest(dbName="public", tablesPattern="*")
    served.append(tables((None, "open"), (None, "tmp_x")))
    assert shown(raw(run).ask("get_table_objects_by_name_req", req=by_pattern)) == [(None, "open")]
    # The metastore answers with the named tables only, all of which the caller may see.
    served.append(tables((None, None)))
    by_name = types.GetTablesRequest(dbName="public", tblNames=["open"])
    assert shown(raw(run).ask("get_table_objects_by_name_req", req=by_name)) == [(None, None)]
    fault = raw(run).ask("get_table_objects_by_name_req", req=by_pattern)
    assert "Request the field tableName, too" in str(fault)


# -- patterns in a federation --------------------------------------------------------------------------------


class Listed:
    """A metastore whose databases all have the same tables."""

    def __init__(self, *_databases: str) -> None:
        self.hang = threading.Event()
        self.asked: list[tuple[str, Any]] = []

    def __call__(self, method: str, args: Any) -> Any:
        self.asked.append((method, args))
        if method == "get_tables":
            return ["near_a", "near_b", "tmp_x"]
        if method == "get_table_meta":
            names = args.tbl_patterns.split("|")
            return [types.TableMeta(dbName="finance", tableName=name, tableType="T") for name in names]
        if method == "get_table_objects_by_name_req":
            names = args.req.tblNames or ["near_a", "near_b", "tmp_x", "rates"]
            return tables(*((args.req.dbName, name) for name in names))
        return None


class Lists(Federated):
    near: Any
    far: Any
    store: Any = Listed


@pytest.mark.parametrize("name", ["far_sales|secret", "far_.*", "far_*"])
def test_a_federation_takes_no_pattern_of_databases(peer: Peers, stack: ExitStack, name: str) -> None:
    """Of two databases, one could be of another owner, or be hidden."""
    both = Lists(peer, stack)
    for method, arguments in tables_of(name, tblNames=["t"]):
        assert "as a pattern of several databases" in str(both.ask(method, **arguments))
    assert both.near.asked + both.far.asked == []


def test_a_pattern_of_tables_finds_those_of_other_metastores(peer: Peers, stack: ExitStack) -> None:
    names = RemoteNames(tables={"ours.rates": "finance.fx_rates", "ours.near_b": "finance.b"})
    both = Lists(peer, stack, names=names)
    request = types.GetTablesRequest(dbName="OURS", tablesPattern="*")
    answer = both.ask("get_table_objects_by_name_req", req=request)["success"].tables
    assert sorted(table.tableName for table in answer) == ["near_a", "near_b", "rates", "tmp_x"]
    far = [args.req.tblNames for method, args in both.far.asked if method == "get_table_objects_by_name_req"]
    assert far == [["b", "fx_rates"]]
    # A call with names, too, is about those of them that match.
    request = types.GetTablesRequest(dbName="ours", tablesPattern="*", tblNames=["Near_A", "nothing"])
    answer = both.ask("get_table_objects_by_name_req", req=request)["success"].tables
    assert [table.tableName for table in answer] == ["near_a"]
    # The tables of other databases need no list.
    both.near.asked.clear()
    request = types.GetTablesRequest(dbName="theirs", tablesPattern="*")
    assert both.ask("get_table_objects_by_name_req", req=request)["success"].tables
    assert [method for method, _ in both.near.asked] == ["get_table_objects_by_name_req"]


def test_a_pattern_of_tables_finds_no_hidden_ones_of_other_metastores(peer: Peers, stack: ExitStack) -> None:
    names = RemoteNames(tables={"ours.tmp_rates": "finance.fx_rates"})
    both = Lists(peer, stack, names=names)
    both.gateway = Gateway(both.federation, NO_TEMPORARY_TABLES)
    request = types.GetTablesRequest(dbName="ours", tablesPattern="*")
    answer = both.ask("get_table_objects_by_name_req", req=request)["success"].tables
    assert sorted(table.tableName for table in answer) == ["near_a", "near_b"]
    assert "get_table_objects_by_name_req" not in [method for method, _ in both.far.asked]


# -- privileges ----------------------------------------------------------------------------------------------


def privilege(**place: Any) -> types.HiveObjectPrivilege:
    return types.HiveObjectPrivilege(
        hiveObject=types.HiveObjectRef(**place), principalName="bob", principalType=types.PrincipalType.USER
    )


GRANTED = [
    privilege(objectType=T.GLOBAL),
    privilege(objectType=T.DATABASE, dbName="payroll"),
    privilege(objectType=T.DATABASE, dbName="public"),
    privilege(objectType=T.TABLE, dbName="payroll", objectName="wages"),
    privilege(objectType=T.TABLE, dbName="public", objectName="open"),
    privilege(objectType=T.COLUMN, dbName="public", objectName="tmp_x", columnName="c"),
    privilege(objectType=T.DATACONNECTOR, objectName="erp"),
    privilege(objectType=T.TABLE, dbName="public", objectName="open", catName="spark"),
]


@pytest.mark.parametrize("place", [{"dbName": "public"}, {}, {"dbName": "public", "objectType": 99}])
def test_lists_of_privileges_name_what_the_caller_may_see(
    peer: Peers, gateway: Gateways, raw: Raws, place: dict[str, Any]
) -> None:
    rules = Rules((Rule(databases=("public",)),), Exposure(tables=("*", "!*.tmp_*")))
    served = Thrift(lambda *_: GRANTED)
    question: dict[str, Any] = {
        "principal_name": "bob",
        "principal_type": 1,
        "hiveObject": types.HiveObjectRef(**place),
    }
    answer = raw(gateway(peer(served).uri, rules=rules)).ask("list_privileges", **question)
    assert answer == {"success": [GRANTED[2], GRANTED[4]]}
    assert raw(gateway(peer(served).uri)).ask("list_privileges", **question) == {"success": GRANTED}


def bag(**place: Any) -> types.PrivilegeBag:
    return types.PrivilegeBag(
        privileges=[privilege(dbName="public", objectType=T.DATABASE), privilege(**place)]
    )


def about(**place: Any) -> dict[str, dict[str, Any]]:
    """Return a call of each method about privileges of an object."""
    request = types.GrantRevokePrivilegeRequest(
        requestType=types.GrantRevokeType.GRANT, privileges=bag(**place)
    )
    return {
        "get_privilege_set": {"hiveObject": types.HiveObjectRef(**place), "user_name": "bob"},
        "grant_privileges": {"privileges": bag(**place)},
        "revoke_privileges": {"privileges": bag(**place)},
        "grant_revoke_privileges": {"request": request},
        "refresh_privileges": {
            "objToRefresh": types.HiveObjectRef(dbName="public", objectType=T.DATABASE),
            "authorizer": "a",
            "grantRequest": request,
        },
    }


@pytest.mark.parametrize("method", sorted(OF_PRIVILEGES - {"list_privileges"}))
@pytest.mark.parametrize(
    "place",
    [
        {"dbName": "public", "objectType": T.GLOBAL},
        {"dbName": "public", "objectType": T.DATACONNECTOR, "objectName": "erp"},
        {"dbName": "public"},
        {"dbName": "public", "objectType": 99},
        {"objectType": T.DATABASE},
        {"dbName": "public", "objectType": T.TABLE},
        {"dbName": "public", "objectType": T.COLUMN, "columnName": "c"},
    ],
)
def test_privileges_of_no_database_are_for_those_who_see_all(
    peer: Peers, gateway: Gateways, raw: Raws, method: str, place: dict[str, Any]
) -> None:
    served: list[str] = []
    peered = peer(Thrift(lambda method, _args: served.append(method))).uri
    answer = raw(gateway(peered, rules=ALL_BUT_PAYROLL)).ask(method, **about(**place)[method])
    assert "of no database, or of a table without a name" in str(answer) or "names none" in str(answer)
    assert served == []
    raw(gateway(peered)).ask(method, **about(**place)[method])
    assert served == [method]


@pytest.mark.parametrize("kind", [T.GLOBAL, T.DATACONNECTOR])
def test_privileges_of_no_database_are_not_listed(
    peer: Peers, gateway: Gateways, raw: Raws, kind: types.HiveObjectType
) -> None:
    place = types.HiveObjectRef(objectType=kind, dbName="public")
    answer = raw(gateway(peer(Thrift(lambda *_: [])).uri, rules=ALL_BUT_PAYROLL)).ask(
        "list_privileges", hiveObject=place
    )
    assert "a privilege is of no database" in str(answer)


@pytest.mark.parametrize("method", sorted(OF_PRIVILEGES))
def test_an_object_of_privileges_is_a_table(peer: Peers, gateway: Gateways, raw: Raws, method: str) -> None:
    place: dict[str, Any] = {"objectType": T.TABLE, "dbName": "public", "objectName": "tmp_x"}
    calls = {**about(**place), "list_privileges": {"hiveObject": types.HiveObjectRef(**place)}}
    run = gateway(peer(Thrift(lambda *_: None)).uri, rules=NO_TEMPORARY_TABLES)
    assert "public.tmp_x through this gateway" in str(raw(run).ask(method, **calls[method]))


def test_privileges_of_no_database_belong_to_the_primary_metastore(peer: Peers, stack: ExitStack) -> None:
    """Those of another metastore name its hidden databases, and global ones let callers do more there."""
    both = Federated(peer, stack, writable=True)
    places: list[dict[str, Any]] = [
        {"dbName": "far_sales"},
        {"dbName": "far_sales", "objectType": T.GLOBAL},
    ]
    for place in places:
        for method in ("list_privileges", "get_privilege_set"):
            question = {"hiveObject": types.HiveObjectRef(**place)}
            assert "a privilege is of no database" in str(both.ask(method, **question))
        grants = types.PrivilegeBag(privileges=[privilege(**place)])
        assert "a privilege is of no database" in str(both.ask("grant_privileges", privileges=grants))
    assert both.far.asked == []


# -- data connectors -----------------------------------------------------------------------------------------


def created(method: str, **fields: Any) -> dict[str, Any]:
    """Return the arguments of a call that creates the database ``mine``."""
    if method == "create_database":
        return {"database": types.Database(name="mine", **fields)}
    connector = fields.pop("connector_name", None)
    request = types.CreateDatabaseRequest(databaseName="mine", dataConnectorName=connector, **fields)
    return {"createDatabaseRequest": request}


@pytest.mark.parametrize("method", OF_CONNECTORS)
def test_databases_of_data_connectors_are_made_by_those_who_see_all(
    peer: Peers, gateway: Gateways, raw: Raws, method: str
) -> None:
    """Definitions of their tables contain the connector's password."""
    served: list[str] = []
    uri = peer(Thrift(lambda method, _args: served.append(method))).uri
    limited, unlimited = raw(gateway(uri, rules=ALL_BUT_PAYROLL)), raw(gateway(uri))
    remote = types.DatabaseType.REMOTE
    for fields in (
        {"type": remote, "connector_name": "pg", "remote_dbname": "payroll"},
        {"type": remote},
        {"connector_name": "pg"},
        {"type": 99},
    ):
        arguments = created(method, **fields)
        assert "the password of a data connector" in str(limited.ask(method, **arguments)), fields
        assert served == []
        unlimited.ask(method, **arguments)
        assert served == [method]
        served.clear()
    for fields in ({"type": types.DatabaseType.NATIVE}, {}):
        assert limited.ask(method, **created(method, **fields)) == {}
        assert served == [method]
        served.clear()


# -- ids and counts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", sorted(BY_ID))
def test_compactions_are_marked_by_those_who_see_all(
    peer: Peers, gateway: Gateways, raw: Raws, method: str
) -> None:
    served: list[str] = []
    uri = peer(Thrift(lambda method, _args: served.append(method))).uri
    marked: dict[str, Any] = {
        "cr": types.CompactionInfoStruct(id=7, dbname="public", tablename="open", type=1)
    }
    answer = raw(gateway(uri, rules=ALL_BUT_PAYROLL)).ask(method, **marked)
    assert "Hive finds a compaction by its id" in str(answer)
    assert served == []
    raw(gateway(uri)).ask(method, **marked)
    assert served == [method]


def test_events_of_all_databases_are_not_counted(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    served = Thrift(lambda *_: types.NotificationEventsCountResponse(eventsCount=7))
    run = gateway(peer(served).uri, rules=ALL_BUT_PAYROLL)
    for name, counts in (("*", False), (" * ", False), ("public", True)):
        request = types.NotificationEventsCountRequest(fromEventId=0, dbName=name)
        answer = raw(run).ask("get_notification_events_count", rqst=request)
        assert ("success" in answer) is counts, (name, answer)


# -- catalogs ------------------------------------------------------------------------------------------------


OTHER_CATALOG: dict[str, dict[str, Any]] = {
    "get_all_tables": {"db_name": "@spark#public"},
    "get_databases": {"pattern": "@spark#*"},
    "get_databases_req": {"request": types.GetDatabaseObjectsRequest(catalogName="spark")},
    "get_table_req": {"req": types.GetTableRequest(dbName="public", tblName="t", catName="Spark")},
    "get_privilege_set": {
        "hiveObject": types.HiveObjectRef(dbName="public", objectType=T.DATABASE, catName="spark")
    },
}


@pytest.mark.parametrize("method", OTHER_CATALOG)
def test_rules_are_about_the_metastores_own_catalog(
    peer: Peers, gateway: Gateways, raw: Raws, method: str
) -> None:
    served: list[str] = []
    uri = peer(Thrift(lambda method, _args: served.append(method))).uri
    answer = raw(gateway(uri, rules=ALL_BUT_PAYROLL)).ask(method, **OTHER_CATALOG[method])
    assert "rules about some databases concern the metastore's own catalog only" in str(answer)
    assert served == []
    for options in ({"settings": {"catalog": "spark"}, "rules": ALL_BUT_PAYROLL}, {}):
        raw(gateway(uri, **options)).ask(method, **OTHER_CATALOG[method])
    assert served == [method, method]


def test_the_own_catalog_and_definitions_of_others_are_read(
    peer: Peers, gateway: Gateways, raw: Raws
) -> None:
    run = gateway(peer(Thrift(lambda *_: [])).uri, rules=ALL_BUT_PAYROLL)
    assert raw(run).ask("get_all_tables", db_name="@hive#public") == {"success": []}
    run = gateway(peer(Thrift(lambda *_: types.GetCatalogResponse())).uri, rules=ALL_BUT_PAYROLL)
    assert "success" in raw(run).ask("get_catalog", catName=types.GetCatalogRequest(name="spark"))


def test_lists_leave_out_other_catalogs(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    events = [
        types.NotificationEvent(eventId=number, dbName="public", catName=catalog, eventType="X", message="")
        for number, catalog in enumerate(("hive", "spark", None), 1)
    ]
    served = Thrift(lambda *_: types.NotificationEventResponse(events=events))
    request = types.NotificationEventRequest(lastEvent=0)
    for rules, numbers in ((ALL_BUT_PAYROLL, [1, 3]), (None, [1, 2, 3])):
        answer = raw(gateway(peer(served).uri, rules=rules)).ask("get_next_notification", rqst=request)
        assert [event.eventId for event in answer["success"].events] == numbers


# -- events in a federation ----------------------------------------------------------------------------------


def test_a_federation_shows_no_listener_of_events(
    peer: Peers, gateway: Gateways, stack: ExitStack, client: Clients
) -> None:
    """The ids of the primary metastore's events would show no change of the others' databases."""
    listeners = "org.x.Other, org.apache.hive.hcatalog.listener.DbNotificationListener,org.x.Last"

    class Configured(Listed):
        def __call__(self, method: str, args: Any) -> Any:
            return listeners if args.name.endswith("listeners") else "warehouse"

    class Both(Lists):
        store = Configured

    both = Both(peer, stack)
    front = ThriftFront(both.gateway, ThriftSettings(port=0)).start()
    stack.callback(front.stop, 0)
    asker = client(front.uri)
    assert not keeps_events(asker)
    assert asker.call("get_config_value", "metastore.event.listeners", "") == "org.x.Other,org.x.Last"
    assert asker.call("get_config_value", "hive.metastore.warehouse.dir", "") == "warehouse"
    # One metastore's ids show each change.
    alone = gateway(peer(Thrift(Configured())).uri)
    assert keeps_events(client(alone.front.uri))
    connection = RawClient(front.address)
    stack.callback(connection.close)
    assert connection.ask("get_config_value", name="x.listeners") == {"success": "org.x.Other,org.x.Last"}
