"""Answers on their way through the gateway: lists that are cut, answers that break off, and faults."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from airflow_hive_federation.errors import HiveFederationError, MetastoreUnreachableError
from airflow_hive_federation.gateway.answers import filtered, with_names
from airflow_hive_federation.gateway.dispatch import Gateway, Metastore
from airflow_hive_federation.gateway.federation.members import Member
from airflow_hive_federation.gateway.handler import Call, Caller, Deadline
from airflow_hive_federation.gateway.messages import (
    I32,
    LIST,
    REPLY,
    STOP,
    STRING,
    STRUCT,
    Emit,
    MessageReader,
    field_bytes,
    head_bytes,
    read_head,
    text_bytes,
)
from airflow_hive_federation.gateway.names import Reference, Text
from airflow_hive_federation.gateway.refusals import application_fault
from airflow_hive_federation.gateway.rules import Rule, Rules
from airflow_hive_federation.gateway.upstream import Upstream
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.message_bounds import MalformedMessage
from airflow_hive_federation.metastore.protocol import encode
from tests.support.gateways import Gateways, Peers, Raws, call_bytes
from tests.support.metastore_peers import Thrift

IN_D = [Reference("d", None, Text("d", 0, 0))]


def message(method: str, **result: object) -> bytes:
    return head_bytes(method, REPLY, 1) + encode(message_types(method)[1](**result))


def of_list(method: str, ttype: int, elements: bytes, count: int) -> bytes:
    values = bytes([ttype]) + count.to_bytes(4, "big") + elements
    return head_bytes(method, REPLY, 1) + field_bytes(0, LIST, values) + bytes([STOP])


def keep_a(_database: str, table: str | None) -> bool:
    return table == "a"


# -- lists ---------------------------------------------------------------------------------------------------


def test_a_list_of_other_elements_is_never_passed_on() -> None:
    numbers = of_list("get_all_tables", I32, b"\0\0\0\1", 1)
    with pytest.raises(MalformedMessage, match="a list of elements of the type 8"):
        filtered("get_all_tables", numbers, IN_D, keep_a)
    with pytest.raises(MalformedMessage):
        with_names("get_all_databases", of_list("get_all_databases", I32, b"\0\0\0\1", 1), str.upper)


def test_an_empty_list_may_have_any_type() -> None:
    """Some servers write no type of elements where there are none."""
    empty = of_list("get_all_tables", 0, b"", 0)
    assert filtered("get_all_tables", empty, IN_D, keep_a) == empty
    assert with_names("get_all_databases", of_list("get_all_databases", 0, b"", 0), str.upper) == of_list(
        "get_all_databases", 0, b"", 0
    )


def test_a_list_that_comes_twice_is_refused() -> None:
    """A client reads the last one, and the gateway would have cut the first."""
    once = of_list("get_all_tables", STRING, text_bytes("a"), 1)
    twice = once[:-1] + once[read_head(once).body :]
    with pytest.raises(MalformedMessage, match="the field 0 comes 2 times"):
        filtered("get_all_tables", twice, IN_D, keep_a)


def test_a_value_that_is_no_list_is_refused() -> None:
    answer = head_bytes("get_all_tables", REPLY, 1) + field_bytes(0, STRING, text_bytes("b")) + bytes([STOP])
    with pytest.raises(MalformedMessage, match="a field of the type 11, not 15"):
        filtered("get_all_tables", answer, IN_D, keep_a)


def test_an_element_without_a_name_is_hidden() -> None:
    answer = message(
        "get_tables_ext", success=[types.ExtendedTableInfo(), types.ExtendedTableInfo(tblName="a")]
    )
    shown = message("get_tables_ext", success=[types.ExtendedTableInfo(tblName="a")])
    assert filtered("get_tables_ext", answer, IN_D, keep_a) == shown


@pytest.mark.parametrize("answer", ["a fault", "no list", "an exception"])
def test_answers_without_a_list_stay_as_they_are(answer: str) -> None:
    data = {
        "a fault": message("get_all_tables", o1=types.MetaException(message="no")),
        "no list": message("get_all_tables"),
        "an exception": application_fault("get_all_tables", 1, 6, "broken"),
    }[answer]
    assert filtered("get_all_tables", data, IN_D, keep_a) == data
    assert with_names("get_all_tables", data, str.upper) == data


def test_a_name_that_is_no_text_is_nobodys_database() -> None:
    answer = of_list("get_all_databases", STRING, b"\0\0\0\x01\xff" + text_bytes("d"), 2)
    renamed = of_list("get_all_databases", STRING, b"\0\0\0\x01\xff" + text_bytes("D"), 2)
    assert with_names("get_all_databases", answer, str.upper) == renamed
    assert filtered("get_all_databases", answer, [], lambda name, _: name == "d") == of_list(
        "get_all_databases", STRING, text_bytes("d"), 1
    )


def test_a_caller_with_some_databases_gets_answers_that_are_no_lists(
    peer: Peers, gateway: Gateways, raw: Raws
) -> None:
    table = types.Table(dbName="d", tableName="t")
    served = Thrift(lambda *_: types.GetTableResult(table=table))
    connection = raw(gateway(peer(served).uri, rules=Rules((Rule(databases=("d",)),))))
    assert connection.ask("get_table_req", req=types.GetTableRequest(dbName="d", tblName="t")) == {
        "success": types.GetTableResult(table=table)
    }


# -- faults, and answers that break off ----------------------------------------------------------------------


class Scripted:
    """A metastore that answers each call with given bytes, and closes the connection where there are none."""

    def __init__(self, answer: Callable[[str, int], tuple[bytes, bool]]) -> None:
        self.answer = answer
        self.calls: list[str] = []

    def __call__(self, connection: socket.socket) -> None:
        def receive(size: int) -> bytes:
            if not (data := connection.recv(size)):
                raise EOFError
            return data

        reader = MessageReader(receive)
        while True:
            head, _ = reader.message()
            if head.method == "set_ugi":
                body = encode(message_types("set_ugi")[1](success=[]))
                connection.sendall(head_bytes("set_ugi", REPLY, head.sequence_id) + body)
                continue
            self.calls.append(head.method)
            data, is_last = self.answer(head.method, head.sequence_id)
            connection.sendall(data)
            if not is_last:
                return


def test_a_fault_that_is_no_missing_method_is_passed_on(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    served = Scripted(lambda method, number: (application_fault(method, number, 6, "out of memory"), True))
    connection = raw(gateway(peer(served).uri))
    for _ in range(2):
        answer = connection.ask("get_table", dbname="d", tbl_name="t")
        assert (answer["message"], answer["type"]) == ("out of memory", 6)
    # Its newer method was not tried instead.
    assert served.calls == ["get_table", "get_table"]


def test_an_answer_that_breaks_off_is_not_begun_anew(peer: Peers) -> None:
    """A client would read the partitions of two answers as one."""
    parts = [types.Partition(values=["a"], parameters={"k": "v" * 1000}) for _ in range(300)]
    result = types.PartitionsByExprResult(partitions=parts, hasUnknownPartitions=False)

    def answer(method: str, number: int) -> tuple[bytes, bool]:
        body = encode(message_types("get_partitions_by_expr")[1](success=result))
        return (head_bytes(method, REPLY, number) + body)[:200_000], False

    served = Scripted(answer)
    target = Metastore(Upstream("main", MetastoreSettings(uris=(peer(served).uri,))))
    request = types.PartitionsByExprRequest(dbName="d", tblName="t", expr=b"x", maxParts=-1)
    method, pieces = "get_partitions_by_expr", []
    call = Call(method, call_bytes(method, req=request), Caller(), Deadline(30))
    with pytest.raises(HiveFederationError):
        Gateway(target).relay(call, pieces.append)
    target.close()
    assert 0 < sum(map(len, pieces)) <= 200_000
    assert served.calls == ["get_partitions_by_expr"]


def test_an_exception_that_the_newer_method_does_not_declare_is_refused(
    peer: Peers, gateway: Gateways, raw: Raws
) -> None:
    def answer(method: str, number: int) -> tuple[bytes, bool]:
        if method == "get_table":
            return application_fault(method, number, 1, "no such method"), True
        fault = field_bytes(1, STRING, text_bytes("new")) + bytes([STOP])
        body = field_bytes(9, STRUCT, fault) + bytes([STOP])
        return head_bytes(method, REPLY, number) + body, True

    connection = raw(gateway(peer(Scripted(answer)).uri))
    answer_fields = connection.ask("get_table", dbname="d", tbl_name="t")
    assert "an exception 9 that get_table_req does not have" in str(answer_fields)


def test_a_client_that_reads_slowly_is_no_failure_of_the_metastore() -> None:
    class Slow:
        """A metastore whose answer begins, and whose client does not take the rest in time."""

        calls = 0

        def relay(self, _call: Call, emit: Emit) -> None:
            self.calls += 1
            emit(b"begins")
            raise MetastoreUnreachableError("the client does not read")

    slow = Slow()
    member = Member("far", slow, timeout_s=5)  # type: ignore[arg-type]
    call = Call("get_all_databases", call_bytes("get_all_databases"), Caller(), Deadline(30), None)
    for _ in range(5):
        with pytest.raises(MetastoreUnreachableError):
            member.ask(call)
    assert slow.calls == 5
