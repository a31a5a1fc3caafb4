"""Calls through the gateway: passed on as they are, answered for old clients, and never done twice."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from airflow_hive_federation.errors import (
    MetastoreServerError,
    NoSuchObjectError,
    UnsupportedMethodError,
)
from airflow_hive_federation.gateway.dispatch import Gateway, Metastore
from airflow_hive_federation.gateway.handler import Call, Caller, Cancellation, Deadline, Status, status_of
from airflow_hive_federation.gateway.messages import read_head
from airflow_hive_federation.gateway.old_clients import WITH_EXPRESSIONS
from airflow_hive_federation.gateway.upstream import Upstream
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.idl.service import METHODS
from airflow_hive_federation.metastore.protocol import ApplicationFault
from airflow_hive_federation.metastore.wire import from_bytes
from tests.support.gateways import Clients, Gateways, Peers, Raws, call_bytes, outcome, rested, until
from tests.support.metastore_peers import DEAD_URI, HangUp, Thrift
from tests.support.older_expressions import OF_HIVE_4, OF_OLDER_HIVE

TABLE = types.Table(dbName="d", tableName="t", parameters={"a": "b"})


def tables(method: str, args: Any) -> Any:
    if method == "get_table_req":
        if args.req.tblName != "t":
            raise types.NoSuchObjectException(message=f"no {args.req.tblName}")
        return types.GetTableResult(table=TABLE)
    if method == "get_table_objects_by_name_req":
        return types.GetTablesResult(tables=[TABLE] if args.req.catName == "other" else [TABLE, TABLE])
    if method == "get_table":
        return TABLE
    return None


def test_calls_pass(peer: Peers, gateway: Gateways, client: Clients) -> None:
    served = Thrift(lambda method, args: ["a", "b"] if method == "get_all_databases" else None)
    run = gateway(peer(served).uri)
    hms = client(run.front.uri, user="alice")
    assert hms.call("get_all_databases") == ["a", "b"]
    hms.call("create_database", types.Database(name="new"))
    assert served.calls == ["get_all_databases", "create_database"]
    assert run.upstream.open_connections == 1
    assert run.front.stop(20)
    assert 'method="create_database",status="ok"} 1' in run.handler.metrics.text()


@pytest.mark.parametrize("lacking", [set(), {"get_table", "get_table_objects_by_name"}], ids=["has", "lacks"])
def test_old_clients_get_what_new_servers_lack(
    peer: Peers,
    gateway: Gateways,
    raw: Raws,
    lacking: set[str],
) -> None:
    served = Thrift(tables, lacking)
    run = gateway(peer(served).uri)
    connection = raw(run)
    assert connection.ask("get_table", 7, dbname="d", tbl_name="t") == {"success": TABLE}
    assert connection.ask("get_table", 8, dbname="d", tbl_name="t") == {"success": TABLE}
    if lacking:
        # The second time, it is known that the server has no such method.
        assert served.calls == ["get_table_req", "get_table_req"]
        missing = connection.ask("get_table", 9, dbname="d", tbl_name="x")
        assert missing == {"o2": types.NoSuchObjectException(message="no x")}
        two = connection.ask("get_table_objects_by_name", 10, dbname="d", tbl_names=["t"])
        assert two == {"success": [TABLE, TABLE]}
        other = connection.ask("get_table_objects_by_name", 10, dbname="@other#d", tbl_names=["t"])
        assert other == {"success": [TABLE]}
    else:
        assert served.calls == ["get_table", "get_table"]


#: The calls of Hudi's Hive sync and of its lock provider, by the client of Hive 2.3 that it brings.
OF_HUDI = """
    set_ugi setMetaConf get_database create_database get_table create_table_with_environment_context
    alter_table_with_environment_context drop_table_with_environment_context get_partitions
    get_partitions_by_filter add_partitions_req alter_partitions_with_environment_context
    drop_partition_by_name_with_environment_context lock check_lock heartbeat unlock
"""


@pytest.mark.parametrize("method", OF_HUDI.split())
def test_hudis_calls_are_answered_before_hive_4(
    peer: Peers, gateway: Gateways, raw: Raws, method: str
) -> None:
    def answered(asked: str, args: Any) -> Any:
        return tables(asked, args) if asked == "get_table_req" else None

    served = Thrift(answered, {"get_table", "get_table_objects_by_name"})
    asked = {"dbname": "d", "tbl_name": "t"} if method == "get_table" else {}
    fields = raw(gateway(peer(served).uri)).ask(method, 3, **asked)
    assert "message" not in fields, fields
    assert (fields == {"success": TABLE}) == (method == "get_table")


PARTITIONS = [types.Partition(values=["a"], parameters={"é": ""}), types.Partition(values=["b"])]
MATCHING = types.PartitionsByExprResult(partitions=PARTITIONS[:1], hasUnknownPartitions=False)
EVERY = types.PartitionsByExprResult(partitions=PARTITIONS, hasUnknownPartitions=True)


def partitions(method: str, args: Any) -> Any:
    if method == "get_partitions_spec_by_expr":
        # A router between both finds the metastore by the database.
        assert args.req.dbName == "d"
        raise types.NoSuchObjectException(message="no such table")
    if method == "get_partitions_by_expr":
        return MATCHING
    if method == "drop_partitions_req":
        return types.DropPartitionsResult()
    assert (args.req.dbName, args.req.tblName, args.req.maxParts) == ("d", "t", -1)
    return types.PartitionsResponse(partitions=PARTITIONS)


def by_expression(expression: bytes, most: int = -1) -> types.PartitionsByExprRequest:
    return types.PartitionsByExprRequest(dbName="d", tblName="t", expr=expression, maxParts=most)


def test_hive_4_never_gets_an_expression_of_an_older_client(
    peer: Peers, gateway: Gateways, raw: Raws
) -> None:
    """It would read another object from the bytes, and may crash."""
    expressions: list[bytes] = []

    def noting(method: str, args: Any) -> Any:
        if method == "get_partitions_spec_by_expr":
            expressions.append(args.req.expr)
        return partitions(method, args)

    served = Thrift(noting)
    asking = raw(gateway(peer(served).uri))
    for expression in OF_OLDER_HIVE:
        served.calls.clear()
        # All of them, and the answer notes that they need not match.
        assert asking.ask("get_partitions_by_expr", 3, req=by_expression(expression)) == {"success": EVERY}
        # The first two of all would not be the first two that match.
        refused = asking.ask("get_partitions_by_expr", req=by_expression(expression, 2))
        assert "cannot read the expression" in refused["o1"].message
        parts = types.RequestPartsSpec(exprs=[types.DropPartitionsExpr(expr=expression)])
        dropping = types.DropPartitionsRequest(dbName="d", tblName="t", parts=parts)
        assert "cannot read the expression" in asking.ask("drop_partitions_req", req=dropping)["o2"].message
        probe = "get_partitions_spec_by_expr"
        assert served.calls == [probe, "get_partitions_req", probe, probe]
        # Older clients have no such calls, but another one may pass their expression on.
        for method in (probe, "get_partition_names_req"):
            refused = asking.ask(method, req=by_expression(expression))
            assert "cannot read the expression" in refused["o1"].message
        assert set(expressions) == {b"\xff"}
        assert set(served.calls) == {probe, "get_partitions_req"}


def test_the_calls_that_hold_expressions_are_known() -> None:
    def holds(kind: Any, above: frozenset[Any] = frozenset()) -> bool:
        fields = [] if kind in above else list(kind.thrift_spec.values())
        return any(
            field[:2] == (18, "expr") or any(holds(struct, above | {kind}) for struct in structs_of(field))
            for field in fields
        )

    def structs_of(field: tuple[Any, ...]) -> list[Any]:
        ttype, inner = field[0], field[2] if len(field) == 4 else None
        while ttype in {14, 15} and isinstance(inner, tuple):
            ttype, inner = inner
        return [inner] if ttype == 12 else []

    # No metastore answers the last one: none keeps metadata of files.
    known = WITH_EXPRESSIONS | {"get_file_metadata_by_expr"}
    assert {method for method in METHODS if holds(message_types(method)[0])} == known


def test_the_metastore_that_writes_is_asked_for_its_own_version(
    peer: Peers, gateway: Gateways, raw: Raws
) -> None:
    """During an upgrade, the metastore for readers may be an older one."""
    writing = Thrift(partitions)
    reading = Thrift(partitions, {"get_partitions_spec_by_expr"})
    asking = raw(gateway(peer(writing).uri, reading=peer(reading).uri))
    parts = types.RequestPartsSpec(exprs=[types.DropPartitionsExpr(expr=OF_OLDER_HIVE[0])])
    dropping = types.DropPartitionsRequest(dbName="d", tblName="t", parts=parts)
    assert "cannot read the expression" in asking.ask("drop_partitions_req", req=dropping)["o2"].message
    assert (writing.calls, reading.calls) == (["get_partitions_spec_by_expr"], [])
    # Calls that read go to the older one, which reads the expression.
    request = by_expression(OF_OLDER_HIVE[0])
    assert asking.ask("get_partitions_by_expr", req=request) == {"success": MATCHING}
    assert (len(writing.calls), reading.calls) == (1, ["get_partitions_by_expr"])


class Upgraded:
    """A metastore of two servers, of which one has the older version."""

    def __init__(self, older: Thrift, newer: Thrift, peer: Peers, gateway: Gateways) -> None:
        self.older, self.newer = older, newer
        uris = [peer(older).uri, peer(newer).uri]
        running = gateway(*uris)
        # The first calls go to the older one.
        running.upstream._endpoints.sort(key=lambda endpoint: uris.index(str(endpoint)))
        self.front = running


PROBE = "get_partitions_spec_by_expr"


def test_the_server_that_gets_an_expression_is_the_one_that_answered_for_itself(
    peer: Peers, gateway: Gateways, raw: Raws
) -> None:
    """During an upgrade, the servers of one metastore are of several versions."""

    def ending(method: str, args: Any) -> Any:
        if method == "get_partitions_by_expr":
            raise HangUp
        return partitions(method, args)

    both = Upgraded(Thrift(ending, {PROBE}), Thrift(partitions), peer, gateway)
    asking = raw(both.front)
    # The older server ends within the call; the other one, of Hive 4, never gets the expression.
    answer = asking.ask("get_partitions_by_expr", req=by_expression(OF_OLDER_HIVE[0]))
    assert answer == {"success": EVERY}
    assert both.older.calls == ["get_partitions_by_expr"]
    assert both.newer.calls == [PROBE, "get_partitions_req"]


def test_a_server_that_ends_before_an_expression_has_not_got_it(
    peer: Peers, gateway: Gateways, raw: Raws
) -> None:
    def ending(method: str, args: Any) -> Any:
        raise HangUp

    both = Upgraded(Thrift(ending), Thrift(partitions, {PROBE}), peer, gateway)
    asking = raw(both.front)
    parts = types.RequestPartsSpec(exprs=[types.DropPartitionsExpr(expr=OF_OLDER_HIVE[0])])
    dropping = types.DropPartitionsRequest(dbName="d", tblName="t", parts=parts)
    assert asking.ask("drop_partitions_req", req=dropping) == {"success": types.DropPartitionsResult()}
    assert (both.older.calls, both.newer.calls) == ([PROBE], ["drop_partitions_req"])
    both.newer.handler = ending
    both.newer.lacking = set()
    refused = asking.ask("drop_partitions_req", req=dropping)
    assert "could not be sent" in refused["o2"].message


@pytest.mark.parametrize("method", ["get_partitions_by_expr", "drop_partitions_req"])
def test_a_call_without_its_request_is_the_metastores_to_refuse(
    peer: Peers, gateway: Gateways, raw: Raws, method: str
) -> None:
    def answer(method: str, args: Any) -> Any:
        assert args.req is None
        raise types.MetaException(message=f"{method} has no request")

    served = Thrift(answer)
    refused = raw(gateway(peer(served).uri)).ask(method)
    assert [fault.message for fault in refused.values()] == [f"{method} has no request"]
    assert served.calls == [method]


def test_a_server_that_lacks_the_other_call_answers_no_older_expression(
    peer: Peers, gateway: Gateways, raw: Raws
) -> None:
    served = Thrift(partitions, {"get_partitions_req"})
    asking = raw(gateway(peer(served).uri))
    refused = asking.ask("get_partitions_by_expr", req=by_expression(OF_OLDER_HIVE[0]))
    assert "cannot read the expression" in refused["o1"].message


@pytest.mark.parametrize("expression", [OF_HIVE_4, b"\xff", b"p='a'"], ids=["Hive 4", "no filter", "msck"])
def test_other_expressions_pass(peer: Peers, gateway: Gateways, raw: Raws, expression: bytes) -> None:
    served = Thrift(partitions)
    asking = raw(gateway(peer(served).uri))
    assert asking.ask("get_partitions_by_expr", req=by_expression(expression)) == {"success": MATCHING}
    parts = types.RequestPartsSpec(exprs=[types.DropPartitionsExpr(expr=expression)])
    dropping = types.DropPartitionsRequest(dbName="d", tblName="t", parts=parts)
    assert asking.ask("drop_partitions_req", req=dropping) == {"success": types.DropPartitionsResult()}
    by_name = types.DropPartitionsRequest(
        dbName="d", tblName="t", parts=types.RequestPartsSpec(names=["p=a"])
    )
    assert asking.ask("drop_partitions_req", req=by_name) == {"success": types.DropPartitionsResult()}
    assert served.calls == ["get_partitions_by_expr", "drop_partitions_req", "drop_partitions_req"]


def test_an_older_metastore_reads_the_expressions_of_its_clients(
    peer: Peers, gateway: Gateways, raw: Raws
) -> None:
    served = Thrift(partitions, {"get_partitions_spec_by_expr"})
    asking = raw(gateway(peer(served).uri))
    for expression in OF_OLDER_HIVE:
        assert asking.ask("get_partitions_by_expr", req=by_expression(expression)) == {"success": MATCHING}


@pytest.mark.parametrize("capable", [True, False], ids=["capable", "as they are"])
def test_tables_of_old_clients_are_made_with_what_is_said_of_them(peer: Peers, capable: bool) -> None:
    asked: list[Any] = []

    def answer(method: str, args: Any) -> None:
        asked.append((method, args))
        if len(asked) == 3:
            raise types.AlreadyExistsException(message="t is there")

    settings = MetastoreSettings(uris=(peer(Thrift(answer)).uri,))
    target = Metastore(
        Upstream("main", settings), old_client_capabilities=["HIVEFULLACIDWRITE"] if capable else []
    )
    handler = Gateway(target)

    def ask(method: str, **arguments: Any) -> dict[str, Any]:
        message = call_bytes(method, **arguments)
        data = handler.answer(Call(method, message, Caller(user="me"), Deadline(20)))
        return outcome(read_head(data), data)

    key = types.SQLPrimaryKey(table_name="t", column_name="c", pk_name="k")
    context = types.EnvironmentContext(properties={"p": "q"})
    assert ask("create_table_with_constraints", tbl=TABLE, primaryKeys=[key], checkConstraints=[]) == {}
    assert ask("create_table_with_environment_context", tbl=TABLE, environment_context=context) == {}
    there = ask("create_table", tbl=TABLE)
    assert there == {"o1": types.AlreadyExistsException(message="t is there")}
    target.close()
    if capable:
        assert {method for method, _ in asked} == {"create_table_req"}
        first, second, _ = (args.request for _, args in asked)
        assert (first.table, first.primaryKeys, first.checkConstraints) == (TABLE, [key], [])
        assert (first.processorCapabilities, first.foreignKeys) == (["HIVEFULLACIDWRITE"], None)
        assert second.envContext == context
    else:
        assert "create_table_req" not in [method for method, _ in asked]


def test_methods_of_indexes_and_unknown_ones_are_refused_and_the_next_call_works(
    peer: Peers, gateway: Gateways, raw: Raws
) -> None:
    run = gateway(peer(Thrift(tables)).uri)
    connection = raw(run)
    for method, message in (
        ("get_indexes", "no indexes since version 3.0"),
        ("make_coffee", "no method of Hive"),
    ):
        connection.sock.sendall(
            b"\x80\1\0\1" + len(method).to_bytes(4, "big") + method.encode() + b"\0\0\0\5\0"
        )
        head, data = connection.message()
        assert (head.method, head.sequence_id) == (method, 5)
        fault = from_bytes(ApplicationFault, data[head.body :])
        assert fault.type == 1
        assert message in str(fault.message)
    assert connection.ask("get_table", dbname="d", tbl_name="t") == {"success": TABLE}


def test_a_call_that_writes_is_not_repeated(peer: Peers, gateway: Gateways, client: Clients) -> None:
    def hang_up(_method: str, _args: Any) -> Any:
        raise HangUp

    served = Thrift(hang_up)
    run = gateway(peer(served).uri)
    with pytest.raises(MetastoreServerError, match=r"upstream main .* may have been carried out or not"):
        client(run.front.uri).call("create_database", types.Database(name="new"))
    assert served.calls == ["create_database"]
    with pytest.raises(MetastoreServerError, match="the connection to upstream main"):
        client(run.front.uri).call("get_all_databases")
    # A call that only reads is made once more.
    assert served.calls == ["create_database", "get_all_databases", "get_all_databases"]
    assert run.upstream.open_connections == 0


def test_a_connection_that_was_closed_while_idle_is_not_used(
    peer: Peers, gateway: Gateways, raw: Raws
) -> None:
    served = Thrift(lambda _method, _args: None)
    listening = peer(served)
    run = gateway(listening.uri)
    connection = raw(run)
    assert connection.ask("create_database", database=types.Database(name="a")) == {}
    listening.hang_up()
    # It would be an unknown outcome if the call went to the closed connection.
    assert connection.ask("create_database", database=types.Database(name="b")) == {}
    assert run.upstream.open_connections == 1


def test_users_are_passed_on_where_the_metastore_trusts_the_gateway(
    peer: Peers,
    gateway: Gateways,
    raw: Raws,
    client: Clients,
) -> None:
    served = Thrift(lambda _method, _args: [])
    trusting = gateway(peer(served).uri, impersonate=True, settings={"user": "gate"})
    for user in ("alice", "bob", "alice"):
        client(trusting.front.uri, user=user, groups=("g",)).call("get_all_databases")
        rested(trusting)
    assert served.users == ["alice", "bob"]
    assert trusting.upstream.open_connections == 2
    assert raw(trusting).ask("get_all_databases") == {"success": []}
    assert served.users[2:] == ["gate"]

    others = Thrift(lambda _method, _args: [])
    plain = gateway(peer(others).uri, settings={"user": "gate"})
    client(plain.front.uri, user="alice").call("get_all_databases")
    assert others.users == ["gate"]


def test_set_ugi_is_answered_as_hive_does(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    run = gateway(peer(Thrift(tables)).uri)
    connection = raw(run)
    assert connection.ask("set_ugi", user_name="u", group_names=["g"]) == {"success": ["g", "u"]}


def test_connections_are_limited_and_shared_by_users(peer: Peers, gateway: Gateways, client: Clients) -> None:
    served = Thrift(lambda _method, _args: [])
    run = gateway(peer(served).uri, impersonate=True, max_connections=2)
    for user in "abcabc":
        client(run.front.uri, user=user).call("get_all_databases")
    assert run.upstream.open_connections == 2


def test_a_metastore_with_all_connections_in_use_is_named(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    release = threading.Event()
    listening = peer(Thrift(lambda _method, _args: [] if release.wait(30) else None))
    run = gateway(listening.uri, max_connections=1)
    first = raw(run)
    first.sock.sendall(call_bytes("get_all_databases"))
    until(lambda: run.upstream.open_connections)
    message = call_bytes("get_all_databases")
    answer = run.handler.answer(Call("get_all_databases", message, Caller(), Deadline(0.2)))
    assert "all 1 connections to main were in use" in str(outcome(read_head(answer), answer))
    release.set()
    assert outcome(*first.message()) == {"success": []}
    answered = run.handler.answer(Call("get_all_databases", message, Caller(), Deadline(9)))
    assert outcome(read_head(answer), answered)


def test_a_metastore_that_is_down_is_named(gateway: Gateways, raw: Raws) -> None:
    run = gateway(DEAD_URI)
    answer = raw(run).ask("get_all_databases")
    assert "Upstream main does not answer" in answer["o1"].message
    assert "Traceback" not in answer["o1"].message


def test_the_next_server_is_asked(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    served = Thrift(lambda _method, _args: [])
    run = gateway(DEAD_URI, peer(served).uri)
    for _ in range(5):
        assert raw(run).ask("get_all_databases") == {"success": []}


def test_reading_calls_go_to_the_reading_servers(peer: Peers, gateway: Gateways, client: Clients) -> None:
    ids = types.GetValidWriteIdsResponse(tblValidWriteIds=[])
    main = Thrift(lambda method, _: ids if method == "get_valid_write_ids" else None)
    reading = Thrift(lambda *_: [])
    run = gateway(peer(main).uri, reading=peer(reading).uri)
    hms = client(run.front.uri)
    hms.call("get_all_databases")
    hms.call("create_database", types.Database(name="x"))
    hms.call("get_valid_write_ids", types.GetValidWriteIdsRequest(fullTableNames=["a.b"]))
    assert reading.calls == ["get_all_databases"]
    assert main.calls == ["create_database", "get_valid_write_ids"]


def test_events_come_from_the_server_of_their_newest_id(
    peer: Peers, gateway: Gateways, client: Clients
) -> None:
    """A server that lags behind would seem to have lost the newest events."""
    answers = {
        "get_all_write_event_info": [],
        "get_current_notificationEventId": types.CurrentNotificationEventId(eventId=5),
        "get_next_notification": types.NotificationEventResponse(events=[]),
        "get_notification_events_count": types.NotificationEventsCountResponse(eventsCount=5),
    }
    main, reading = Thrift(lambda method, _: answers[method]), Thrift(lambda *_: None)
    hms = client(gateway(peer(main).uri, reading=peer(reading).uri).front.uri)
    hms.call("get_current_notificationEventId")
    hms.call("get_next_notification", types.NotificationEventRequest(lastEvent=4))
    hms.call("get_notification_events_count", types.NotificationEventsCountRequest(fromEventId=0, dbName="d"))
    hms.call("get_all_write_event_info", types.GetAllWriteEventInfoRequest(txnId=1))
    assert (sorted(main.calls), reading.calls) == (sorted(answers), [])


def test_a_client_that_gives_up_ends_the_call(peer: Peers, gateway: Gateways) -> None:
    began, release = threading.Event(), threading.Event()

    def wait(_method: str, _args: Any) -> Any:
        began.set()
        release.wait(30)
        return []

    run = gateway(peer(Thrift(wait)).uri)
    cancellation = Cancellation()
    errors: list[Any] = []

    def ask() -> None:
        try:
            message = call_bytes("get_all_databases")
            run.handler.ask(Call("get_all_databases", message, Caller(), Deadline(30), cancellation))
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    assert began.wait(20)
    cancellation.cancel()
    thread.join(20)
    release.set()
    assert status_of(errors[0]) == Status.CANCELLED
    assert run.upstream.open_connections == 0


def test_errors_of_the_metastore_are_the_clients(peer: Peers, gateway: Gateways, client: Clients) -> None:
    run = gateway(peer(Thrift(tables, {"get_table"})).uri)
    hms = client(run.front.uri)
    with pytest.raises(NoSuchObjectError, match="no x"):
        hms.call("get_table", "d", "x")
    assert hms.call("get_table", "d", "t") == TABLE
    with pytest.raises(UnsupportedMethodError):
        client(gateway(peer(Thrift(tables, {"get_all_tables"})).uri).front.uri).call("get_all_tables", "d")


@pytest.mark.parametrize("method", ["setMetaConf", "shutdown"])
def test_calls_that_would_reach_other_clients_are_never_passed_on(
    peer: Peers, gateway: Gateways, raw: Raws, method: str
) -> None:
    served = Thrift(tables)
    connection = raw(gateway(peer(served).uri))
    asked = {"key": "metastore.try.direct.sql", "value": "false"} if method == "setMetaConf" else {}
    answer = connection.ask(method, **asked)
    assert "is never passed on" in (answer["o1"].message if asked else answer["message"])
    assert served.calls == []
