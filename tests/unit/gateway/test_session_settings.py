"""``setMetaConf`` through a gateway: one setting, for the client that asked, on connections of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from airflow_hive_federation.errors import GatewayError
from airflow_hive_federation.gateway.dispatch import Gateway, Metastore
from airflow_hive_federation.gateway.handler import Call, Caller, Deadline
from airflow_hive_federation.gateway.methods import Access
from airflow_hive_federation.gateway.rules import Rule, Rules
from airflow_hive_federation.gateway.upstream import Upstream
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from tests.support.gateways import Gateways, Peers, RawClient, Raws, call_bytes, rested
from tests.support.grpc_fronts import Fronts, ask, fronted
from tests.support.metastore_peers import HangUp, Thrift

__all__ = ["fronted"]

KEY = "metastore.expression.proxy"
MSCK = "org.apache.hadoop.hive.metastore.MsckPartitionExpressionProxy"
QUERIES = "org.apache.hadoop.hive.ql.optimizer.ppr.PartitionExpressionForMetastore"


class Configured(Thrift):
    """A metastore that notes the settings, and the connection of each call that drops partitions."""

    def __init__(self, *, fault: str = "", lacking: set[str] | None = None) -> None:
        super().__init__(self._handle, lacking)
        self.settings: list[tuple[str, str]] = []
        self._fault = fault

    def _handle(self, method: str, args: Any) -> Any:
        if method == "setMetaConf":
            if self._fault:
                raise types.MetaException(message=self._fault)
            self.settings.append((args.key, args.value))
            return None
        return types.DropPartitionsResult() if method == "drop_partitions_req" else ["a"]


def drops(client: RawClient) -> dict[str, Any]:
    return client.ask("drop_partitions_req", req=dropping())


def dropping() -> types.DropPartitionsRequest:
    stale = types.DropPartitionsExpr(expr=b"(p='a')")
    return types.DropPartitionsRequest(dbName="d", tblName="t", parts=types.RequestPartsSpec(exprs=[stale]))


DROPPED = {"success": types.DropPartitionsResult()}


@pytest.mark.parametrize("key", [KEY, f"hive.{KEY}"])
def test_a_clients_expressions_are_read_by_its_class(
    key: str, peer: Peers, gateway: Gateways, raw: Raws
) -> None:
    served = Configured()
    run = gateway(peer(served).uri)
    own, other = raw(run), raw(run)
    assert drops(other) == DROPPED
    assert own.ask("setMetaConf", key=key, value=MSCK) == {}
    # The shared connection of the pool gets no setting.
    assert served.calls == ["drop_partitions_req"]
    for _ in range(2):
        rested(run)
        assert drops(own) == DROPPED
    assert served.settings == [(KEY, MSCK)]
    assert served.calls[1:] == ["setMetaConf", "drop_partitions_req", "drop_partitions_req"]
    # Two connections: the one with the setting serves nobody else, and only calls with expressions.
    assert run.upstream.open_connections == 2
    rested(run)
    assert drops(other) == DROPPED
    rested(run)
    assert own.ask("get_all_databases") == {"success": ["a"]}
    assert run.upstream.open_connections == 2
    assert own.ask("setMetaConf", key=key, value=QUERIES) == {}
    assert drops(own) == DROPPED
    assert served.settings == [(KEY, MSCK), (KEY, QUERIES)]
    assert run.upstream.open_connections == 3


def test_connections_with_a_setting_count_like_all_others(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    served = Configured()
    metastore = peer(served)
    run = gateway(metastore.uri, max_connections=1)
    own, other = raw(run), raw(run)
    own.ask("setMetaConf", key=KEY, value=MSCK)
    for _ in range(2):
        assert (drops(other), drops(own)) == (DROPPED, DROPPED)
        assert run.upstream.open_connections == 1
    # Each of the four calls had a connection of its own, since that of the call before was another client's.
    assert len(metastore.connections) == 4
    assert served.settings == [(KEY, MSCK)] * 2


def test_a_client_that_may_write_some_databases_may_have_its_setting(
    peer: Peers, gateway: Gateways, raw: Raws
) -> None:
    served = Configured()
    some = Rules((Rule(access=(Access.WRITE,), databases=("d",)),))
    writer = raw(gateway(peer(served).uri, rules=some))
    assert writer.ask("setMetaConf", key=KEY, value=MSCK) == {}
    assert drops(writer) == DROPPED
    reader = raw(gateway(peer(served).uri, rules=Rules((Rule(),))))
    assert "may not make calls of the class write" in str(reader.ask("setMetaConf", key=KEY, value=MSCK))


@pytest.mark.parametrize(
    ("key", "value"), [("metastore.try.direct.sql", MSCK), (KEY, "org.example.Theirs"), (None, None)]
)
def test_other_settings_are_refused(key: str, value: str, peer: Peers, gateway: Gateways, raw: Raws) -> None:
    served = Configured()
    connection = raw(gateway(peer(served).uri))
    assert "is never passed on" in connection.ask("setMetaConf", key=key, value=value)["o1"].message
    assert drops(connection) == DROPPED
    assert served.settings == []


@pytest.mark.parametrize(
    ("served", "reason"),
    [
        (Configured(fault="Invalid configuration key"), "Invalid configuration key"),
        (Configured(lacking={"setMetaConf"}), "it has no such method"),
    ],
    ids=["refuses", "lacks"],
)
def test_a_metastore_without_the_setting_gets_no_call(
    served: Configured, reason: str, peer: Peers, gateway: Gateways, raw: Raws
) -> None:
    run = gateway(peer(served).uri)
    connection = raw(run)
    connection.ask("setMetaConf", key=KEY, value=MSCK)
    assert reason in drops(connection)["o2"].message
    assert "drop_partitions_req" not in served.calls
    assert run.upstream.open_connections == 0


def failing_once(failing: str, error: type[BaseException]) -> Configured:
    """Return a metastore that fails the first call of a method with an error."""
    served = Configured()
    handled = served.handler

    def answer(method: str, args: Any) -> Any:
        if method == failing and served.calls.count(method) == 1:
            raise error
        return handled(method, args)

    served.handler = answer
    return served


def test_a_connection_that_ends_at_the_setting_is_made_again(
    peer: Peers, gateway: Gateways, raw: Raws
) -> None:
    served = failing_once("setMetaConf", EOFError)
    connection = raw(gateway(peer(served).uri))
    connection.ask("setMetaConf", key=KEY, value=MSCK)
    assert drops(connection) == DROPPED
    assert served.calls == ["setMetaConf", "setMetaConf", "drop_partitions_req"]


def test_a_call_that_is_made_again_has_its_setting(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    served = failing_once("get_partition_names_req", HangUp)
    connection = raw(gateway(peer(served).uri))
    connection.ask("setMetaConf", key=KEY, value=MSCK)
    request = types.PartitionsByExprRequest(dbName="d", tblName="t", expr=b"(p='a')")
    assert connection.ask("get_partition_names_req", req=request) == {"success": ["a"]}
    assert served.calls == ["setMetaConf", "get_partition_names_req"] * 2


def test_a_front_without_lasting_connections_refuses_the_setting(peer: Peers, fronted: Fronts) -> None:
    run = fronted(peer(Configured()).uri)
    with run.channel() as channel:
        assert "Use the Thrift front" in ask(channel, "setMetaConf", key=KEY, value=MSCK)["o1"].message


@contextmanager
def before(uri: str) -> Iterator[Gateway]:
    target = Metastore(Upstream("main", MetastoreSettings(uris=(uri,))))
    try:
        yield Gateway(target)
    finally:
        target.close()


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_a_metastore_without_lasting_connections_gets_no_setting(
    scheme: str, peer: Peers, fronted: Fronts
) -> None:
    served = Configured()
    metastore = peer(served, scheme="thrift" if scheme == "grpc" else scheme)
    uri = fronted(metastore.uri).uri if scheme == "grpc" else metastore.uri
    caller, soon = Caller(), Deadline(60)
    with before(uri) as handler:
        handler.ask(Call("setMetaConf", call_bytes("setMetaConf", key=KEY, value=MSCK), caller, soon))
        message = call_bytes("drop_partitions_req", req=dropping())
        with pytest.raises(GatewayError, match=f"{scheme} has no connections that could be configured"):
            handler.ask(Call("drop_partitions_req", message, caller, soon))
    assert served.calls == []


def test_a_call_that_an_alias_makes_too_long_is_refused(
    peer: Peers, gateway: Gateways, raw: Raws, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = Thrift(lambda *_: [])
    connection = raw(gateway(peer(served).uri, aliases={"a": "a" * 100}))
    asked = call_bytes("get_all_tables", db_name="a")
    longer = len(asked) + 99
    monkeypatch.setattr("airflow_hive_federation.gateway.upstream.HIVES_REQUEST_BYTES", longer)
    assert connection.ask("get_all_tables", db_name="a") == {"success": []}
    monkeypatch.setattr("airflow_hive_federation.gateway.upstream.HIVES_REQUEST_BYTES", longer - 1)
    assert f"the call has {longer} bytes" in connection.ask("get_all_tables", db_name="a")["message"]
    assert served.calls == ["get_all_tables"]
