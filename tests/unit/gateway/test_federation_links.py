"""Recorded remotes lead to the gateway's own metastores, and nowhere else."""

from __future__ import annotations

import json
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_federation.gateway.dispatch import Gateway, Metastore
from airflow_hive_federation.gateway.federation import links
from airflow_hive_federation.gateway.federation.metastores import Metastores, Remote
from airflow_hive_federation.gateway.federation.owners import RemoteNames
from airflow_hive_federation.gateway.federation.target import Federation
from airflow_hive_federation.gateway.handler import Call, Caller, Deadline
from airflow_hive_federation.gateway.messages import read_head
from airflow_hive_federation.gateway.rules import Exposure, Rule, Rules
from airflow_hive_federation.gateway.upstream import Upstream
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.protocol import ApplicationFault
from airflow_hive_federation.remotes.links import MEMBER, NAME, PROPERTIES
from airflow_hive_federation.tunnel.route import TunnelSettings, parse_route
from airflow_hive_federation.tunnel.tunnel import Tunnel
from tests.support.federated import Store, table_request
from tests.support.gateways import Peers, call_bytes, outcome
from tests.support.metastore_peers import Thrift

FAR = "thrift://far.example.com:9083"


class Recording(Store):
    """A metastore whose databases and tables may be remotes."""

    def __init__(self, *databases: str) -> None:
        super().__init__(*databases)
        self.recorded: dict[str, dict[str, str]] = {}
        self.faults: list[Exception] = []
        self.insert_only: set[str] = set()

    def __call__(self, method: str, args: Any) -> Any:
        if method == "get_database":
            self.asked.append((method, args))
            if args.name not in self.databases:
                raise types.NoSuchObjectException(message=args.name)
            return types.Database(name=args.name, parameters=self.recorded.get(args.name))
        if method == "get_table":
            self.asked.append((method, args))
            return self.table(types.GetTableRequest(dbName=args.dbname, tblName=args.tbl_name))
        if method == "get_table_req":
            self.asked.append((method, args))
            return types.GetTableResult(table=self.table(args.req))
        return super().__call__(method, args)

    def table(self, request: Any) -> types.Table:
        name = f"{request.dbName}.{request.tblName}"
        if self.faults and is_lookup(request):
            raise self.faults.pop(0)
        if name in self.insert_only and not is_lookup(request):
            raise types.MetaException(message="Your client does not appear to support insert-only tables.")
        if (parameters := self.recorded.get(name)) is None:
            return super().table(request)
        return types.Table(dbName=request.dbName, tableName=request.tblName, parameters=parameters)


def is_lookup(request: types.GetTableRequest) -> bool:
    """Return whether the gateway itself asks: it sends capabilities, and the client of these tests none."""
    return request.capabilities is not None


class Linked:
    """A gateway that follows the remotes of its primary metastore to the metastore ``far``."""

    def __init__(
        self,
        peer: Peers,
        stack: ExitStack,
        names: RemoteNames | None = None,
        *,
        lacking: set[str] | None = None,
        impersonate: bool = False,
        replica: Store | None = None,
    ) -> None:
        self.near, self.far = Recording("linked", "sales"), Store("sales")
        self.front = Thrift(self.near, lacking)
        self.far_uri = peer(Thrift(self.far)).uri

        def upstream(name: str, uri: str) -> Upstream:
            return Upstream(name, MetastoreSettings(uris=(uri,)), impersonate=impersonate)

        reading = None if replica is None else upstream("replica", peer(Thrift(replica)).uri)
        primary = Metastore(upstream("main", peer(self.front).uri), reading)
        far = Metastore(upstream("far", self.far_uri))
        remote = Remote(target=far, names=names or RemoteNames(), timeout_s=20)
        self.federation = Federation(Metastores(primary, {"far": remote}, follow_links=True))
        stack.callback(self.federation.close)
        self.gateway = Gateway(self.federation)

    def record(self, name: str, remote: str, properties: dict[str, str], **more: str) -> None:
        self.near.recorded[name] = {NAME: remote, PROPERTIES: json.dumps(properties), **more}

    def ask(self, method: str, user: str = "me", **arguments: Any) -> dict[str, Any]:
        message = call_bytes(method, **arguments)
        answer = self.gateway.answer(Call(method, message, Caller(user=user), Deadline(30)))
        return outcome(read_head(answer), answer)

    def owner_of(self, database: str, table: str = "t") -> str:
        """Return the metastore that gets a call about a table, with the names that it gets."""
        before = len(self.far.asked), len(self.near.asked)
        self.ask("get_table_req", req=table_request(database, table))
        for name, store, count in (("far", self.far, before[0]), ("main", self.near, before[1])):
            for method, args in store.asked[count:]:
                if method == "get_table_req" and not is_lookup(args.req):
                    return f"{name} {args.req.dbName}.{args.req.tblName}"
        return "none"


@pytest.fixture
def linked(peer: Peers, stack: ExitStack) -> Linked:
    return Linked(peer, stack)


@pytest.mark.parametrize("name", ["hive.metastore.uris", "metastore.uris"])
def test_a_recorded_database_is_asked_at_its_owner(linked: Linked, name: str) -> None:
    linked.record("linked", "Sales", {name: f"thrift://elsewhere:1, {linked.far_uri}"})
    assert linked.owner_of("linked") == "far sales.t"
    table = linked.ask("get_table_req", req=table_request("linked"))["success"].table
    assert (table.dbName, table.tableName) == ("linked", "t")
    assert linked.owner_of("sales") == "main sales.t"


def test_a_recorded_table_is_asked_at_its_owner(linked: Linked) -> None:
    linked.record("sales.rates", "Finance.FX", {"hive.federation.connection": "far"})
    assert linked.owner_of("sales", "rates") == "far finance.fx"
    assert linked.owner_of("sales", "t") == "main sales.t"


@pytest.mark.parametrize(
    ("properties", "more"),
    [
        ({"hive.metastore.uris": FAR}, {}),
        ({"hive.metastore.uris": "no://uri at all"}, {}),
        ({"hive.federation.connection": "main"}, {}),
        ({"hive.federation.connection": "unknown"}, {}),
        ({"hive.federation.connection": "far", "metastore.catalog.default": "other"}, {}),
        ({"hive.federation.connection": "far"}, {MEMBER: "true"}),
        ({"hive.metastore.uris": "FAR", "ssh.tunnel.route": "me@bastion"}, {}),
        ({"hive.metastore.uris": "FAR", "ssh.tunnel.route": "-> no route"}, {}),
        ({"hive.metastore.uris": "FAR", "metastore.catalog.default": "other"}, {}),
        ({}, {}),
    ],
    ids=[
        *("another metastore", "no address", "itself", "an unknown connection", "a catalog by connection"),
        *(
            "a member of a remote database",
            "another machine behind a hop",
            "no route",
            "a catalog",
            "nothing",
        ),
    ],
)
def test_any_other_link_is_the_primarys_own_table(
    linked: Linked, properties: dict[str, str], more: dict[str, str]
) -> None:
    properties = {key: linked.far_uri if value == "FAR" else value for key, value in properties.items()}
    linked.record("linked", "sales", properties, **more)
    assert linked.owner_of("linked") == "main linked.t"
    assert linked.far.asked == []


@pytest.mark.parametrize(
    ("names", "remote", "seen"),
    [
        (RemoteNames(prefix="far_", shown=("public*",)), "public_sales.t", True),
        (RemoteNames(prefix="far_", shown=("public*",)), "private.salaries", False),
        (RemoteNames(prefix="far_", shown=("*", "!private")), "Private.salaries", False),
        (RemoteNames(databases={"far_hr": "hr"}, shown=()), "hr.t", True),
        (RemoteNames(databases={"far_hr": "hr"}, shown=()), "finance.fx", False),
        (RemoteNames(tables={"ours.rates": "finance.fx"}, shown=()), "finance.fx", True),
        (RemoteNames(tables={"ours.rates": "finance.fx"}, shown=()), "finance.secret", False),
    ],
)
def test_a_link_leads_to_nothing_that_the_file_does_not_show(
    peer: Peers, stack: ExitStack, names: RemoteNames, remote: str, seen: bool
) -> None:
    """Whoever may write the table decides where its link leads."""
    linked = Linked(peer, stack, names)
    linked.record("sales.x", remote, {"hive.federation.connection": "far"})
    assert linked.owner_of("sales", "x") == (f"far {remote}" if seen else "main sales.x")
    assert linked.owner_of("sales", "t") == "main sales.t"


@pytest.mark.parametrize(
    ("rules", "permitted"),
    [
        (Rules((Rule(databases=("*", "!far_hr")),)), {"far_hr.t": False, "far_sales.t": True}),
        (Rules(exposure=Exposure(("*", "!far_hr"))), {"far_hr.t": False, "far_sales.t": True}),
        (Rules(exposure=Exposure(tables=("*", "!far_hr.t"))), {"far_hr.t": False, "far_hr.u": True}),
    ],
    ids=["rules", "databases", "tables"],
)
@pytest.mark.parametrize("kind", ["database", "table"])
def test_a_link_needs_the_rules_of_what_it_leads_to(
    peer: Peers, stack: ExitStack, rules: Rules, permitted: dict[str, bool], kind: str
) -> None:
    linked = Linked(peer, stack, RemoteNames(prefix="far_"))
    linked.gateway = Gateway(linked.federation, rules)
    properties = {"hive.federation.connection": "far"}
    for name, permits in permitted.items():
        remote, table = name.removeprefix("far_").split(".")
        if kind == "database":
            local = f"linked_{remote}"
            linked.near.databases += (local,)
            linked.record(local, remote, properties)
        else:
            local = "sales"
            linked.record(f"sales.{table}", f"{remote}.{table}", properties)
            linked.federation.metastores._links._known.clear()  # type: ignore[union-attr]
        answer = linked.ask("get_table_req", req=table_request(local, table))
        refusal = f"is a link to {remote}.{table} of metastore far, and user 'me' may not read that"
        assert ("success" in answer, refusal in str(answer)) == (permits, not permits)
    assert [args.req.tblName for _, args in linked.far.asked] == [
        name.split(".")[1] for name, permits in permitted.items() if permits
    ]


def test_an_address_behind_hops_is_that_behind_the_same_hops(peer: Peers, stack: ExitStack) -> None:
    def member(uri: str, route: str | None) -> Metastore:
        dialer = None if route is None else Tunnel(TunnelSettings(hops=parse_route(route)))
        return Metastore(Upstream(uri, MetastoreSettings(uris=(uri,), dialer=dialer)))

    near = Recording("linked", "direct")
    primary = Metastore(Upstream("main", MetastoreSettings(uris=(peer(Thrift(near)).uri,))))
    remotes = {
        name: Remote(target=member(FAR, route))
        for name, route in (("direct", None), ("hops", "me@one -> two:23"))
    }
    metastores = Metastores(primary, remotes, follow_links=True)
    stack.callback(metastores.close)
    for name, route in (("direct", {}), ("linked", {"ssh.tunnel.route": "you@ONE->two:23"})):
        properties = json.dumps({"hive.metastore.uris": FAR, **route})
        near.recorded[name] = {NAME: "sales", PROPERTIES: properties}
    call = pending()
    links = metastores.links(call, [("direct", None), ("linked", None)])
    assert [(link.local[0], link.place.owner) for link in links] == [("direct", "direct"), ("linked", "hops")]


def test_uris_of_two_metastores_lead_to_neither(peer: Peers, stack: ExitStack) -> None:
    near = Recording("linked")
    primary = Metastore(Upstream("main", MetastoreSettings(uris=(peer(Thrift(near)).uri,))))
    uris = ("thrift://one:9083", "thrift://two:9083")
    remotes = {uri: Remote(target=Metastore(Upstream(uri, MetastoreSettings(uris=(uri,))))) for uri in uris}
    metastores = Metastores(primary, remotes, follow_links=True)
    stack.callback(metastores.close)
    near.recorded["linked"] = {
        NAME: "sales",
        PROPERTIES: json.dumps({"hive.metastore.uris": ",".join(uris)}),
    }
    assert metastores.links(pending(), [("linked", None)]) == ()


def test_a_link_that_cannot_be_read_fails_its_calls_and_no_others(linked: Linked) -> None:
    linked.near.recorded["linked"] = {NAME: "sales", PROPERTIES: "{no JSON"}
    text = str(linked.ask("get_table_req", req=table_request("linked")))
    assert "The link of database linked cannot be read" in text.replace("DATABASE", "database")
    assert linked.owner_of("sales") == "main sales.t"


@pytest.mark.parametrize(
    "fault",
    [
        types.MetaException(message="the connection to the database was lost"),
        ApplicationFault(message="the connection to the database was lost", type=6),
    ],
    ids=["a fault of Hive", "a fault of Thrift"],
)
def test_a_faulty_lookup_refuses_its_call_and_is_not_remembered(linked: Linked, fault: Exception) -> None:
    linked.record("sales.rates", "Finance.FX", {"hive.federation.connection": "far"})
    linked.near.faults.append(fault)
    text = str(linked.ask("add_partition", new_part=types.Partition(dbName="sales", tableName="rates")))
    assert "metastore main does not show whether sales.rates is a remote: " in text
    assert "the connection to the database was lost" in text
    assert linked.far.asked == []
    assert "add_partition" not in [method for method, _ in linked.near.asked]
    assert linked.owner_of("sales", "rates") == "far finance.fx"


def test_a_denied_lookup_decides_for_its_caller_only(peer: Peers, stack: ExitStack) -> None:
    linked = Linked(peer, stack, impersonate=True)
    linked.record("sales.rates", "Finance.FX", {"hive.federation.connection": "far"})
    linked.near.faults.append(types.MetaException(message="Permission denied: user mallory"))
    request = table_request("sales", "rates")
    assert "Permission denied: user mallory" in str(linked.ask("get_table_req", user="mallory", req=request))
    assert linked.owner_of("sales", "rates") == "far finance.fx"
    # The gateway does not remember for one caller the definition that it has read for another one.
    linked.near.faults.append(types.MetaException(message="Permission denied: user mallory"))
    assert "Permission denied: user mallory" in str(linked.ask("get_table_req", user="mallory", req=request))
    assert linked.front.users == ["mallory", "me"]


def test_a_lookup_sees_insert_only_tables(linked: Linked) -> None:
    linked.near.insert_only.add("sales.events")
    linked.near.insert_only.add("sales.rates")
    linked.record("sales.rates", "Finance.FX", {"hive.federation.connection": "far"})
    assert linked.owner_of("sales", "events") == "main sales.events"
    assert linked.owner_of("sales", "rates") == "far finance.fx"


def test_a_metastore_with_the_older_lookup_only_is_looked_up_by_it(peer: Peers, stack: ExitStack) -> None:
    linked = Linked(peer, stack, lacking={"get_table_req"})
    linked.record("sales.rates", "Finance.FX", {"hive.federation.connection": "far"})
    assert linked.owner_of("sales", "rates") == "far finance.fx"
    assert linked.ask("get_table", dbname="sales", tbl_name="t")["success"].tableName == "t"


def test_a_replica_is_not_asked_for_links(peer: Peers, stack: ExitStack) -> None:
    replica = Recording("linked", "sales")
    linked = Linked(peer, stack, replica=replica)
    linked.record("sales.rates", "Finance.FX", {"hive.federation.connection": "far"})
    assert linked.owner_of("sales", "rates") == "far finance.fx"
    assert replica.asked == []
    linked.ask("get_table_req", req=table_request("sales"))
    assert [method for method, _ in replica.asked] == ["get_table_req"]


def test_a_database_of_another_catalog_is_no_link(linked: Linked) -> None:
    """Links are looked up in the metastore's own catalog."""
    linked.record("linked", "sales", {"hive.metastore.uris": linked.far_uri})
    request = types.GetTableRequest(catName="spark", dbName="linked", tblName="t")
    linked.ask("get_table_req", req=request)
    assert [args.req for _, args in linked.near.asked] == [request]
    component = types.LockComponent(dbname="@spark#linked", tablename="t")
    linked.ask("lock", rqst=types.LockRequest(component=[component], user="u", hostname="h"))
    assert [method for method, _ in linked.near.asked] == ["get_table_req", "lock"]
    assert linked.far.asked == []
    assert linked.owner_of("linked") == "far sales.t"


def test_the_files_own_names_need_no_lookup(peer: Peers, stack: ExitStack) -> None:
    linked = Linked(peer, stack, RemoteNames(databases={"linked": "hr"}))
    linked.record("linked", "sales", {"hive.metastore.uris": linked.far_uri})
    assert linked.owner_of("linked") == "far hr.t"
    assert linked.near.asked == []


def test_a_lookup_is_remembered_and_then_made_anew(linked: Linked, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(links, "time", SimpleNamespace(monotonic=lambda: now[0]))
    assert linked.owner_of("linked") == "main linked.t"
    lookups = looked_up(linked)
    assert linked.owner_of("linked") == "main linked.t"
    assert looked_up(linked) == lookups
    linked.record("linked", "sales", {"hive.metastore.uris": linked.far_uri})
    now[0] += links.REMEMBERED_S
    assert linked.owner_of("linked") == "far sales.t"


def test_lookups_of_many_names_are_bounded(linked: Linked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "_MOST", 3)
    monkeypatch.setattr(links, "time", SimpleNamespace(monotonic=lambda: 100.0))
    linked.owner_of("linked")
    for number in range(4):
        linked.owner_of(f"guessed_{number}")
    lookups = looked_up(linked)
    linked.owner_of("linked")
    assert looked_up(linked) > lookups


def looked_up(linked: Linked) -> int:
    return sum(
        method == "get_database" or (method == "get_table_req" and is_lookup(args.req))
        for method, args in linked.near.asked
    )


def pending() -> Call:
    return Call("get_database", call_bytes("get_database", name="x"), Caller(), Deadline(20), None)
