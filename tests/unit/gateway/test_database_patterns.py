"""Patterns of databases are Hive's, and match the names that clients use."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from airflow_hive_federation.gateway.database_patterns import PATTERNS, matches
from airflow_hive_federation.gateway.dispatch import Gateway
from airflow_hive_federation.gateway.methods import ACCESS
from airflow_hive_federation.gateway.rules import Rule, Rules
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl import types
from tests.support.federated import Federated, Store
from tests.support.gateways import Gateways, Peers, RawClient, Raws, call_bytes, outcome
from tests.support.metastore_peers import Thrift

ALIASES = {"sales_eu": "sales", "odd": "a$b"}


def test_patterns_are_hives() -> None:
    assert matches("far*|ours", "FAR_sales")
    assert matches("ours|x", "ours")
    assert not matches("far", "far_sales")
    assert matches(None, "any")
    # As Hive 4 calls.
    assert matches("@hive#!", "any")
    assert matches("@hive#FAR*", "far_sales")
    assert not matches("@hive#far", "any")
    assert matches("s.les", "sales")
    assert not matches("a+", "aa")


class Databases(Store):
    """A metastore that also lists the definitions of its databases."""

    def __call__(self, method: str, args: Any) -> Any:
        if method != "get_databases_req":
            return super().__call__(method, args)
        self.asked.append((method, args))
        names = [name for name in self.databases if matches(args.request.pattern, name)]
        return types.GetDatabaseObjectsResponse(databases=[types.Database(name=name) for name in names])


def listed(connection: RawClient, pattern: str | None) -> list[str]:
    """Return the databases that each of the methods finds, which all have to be the same ones."""
    names = connection.ask("get_databases", pattern=pattern)["success"]
    request = types.GetDatabaseObjectsRequest(pattern=pattern)
    answer = connection.ask("get_databases_req", request=request)["success"].databases
    assert [database.name for database in answer] == names
    metas = connection.ask("get_table_meta", db_patterns=pattern, tbl_patterns="*", tbl_types=[])["success"]
    assert [meta.dbName for meta in metas] == names
    return names


@pytest.fixture
def store() -> Databases:
    return Databases("a$b", "public", "sales", "sales_us")


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("sales_eu", ["sales_eu"]),
        ("SALES_E.", ["sales_eu"]),
        ("sales_*", ["sales_eu", "sales_us"]),
        ("*eu|public", ["public", "sales_eu"]),
        ("odd", ["odd"]),
        ("@hive#*eu", ["sales_eu"]),
        # The metastore's own name is unknown to clients.
        ("sales", []),
        ("sales|sales_us", ["sales_us"]),
        ("a*", []),
        ("*", ["odd", "public", "sales_eu", "sales_us"]),
        ("@hive#!", ["odd", "public", "sales_eu", "sales_us"]),
        (None, ["odd", "public", "sales_eu", "sales_us"]),
    ],
)
def test_patterns_match_the_names_of_clients(
    peer: Peers, gateway: Gateways, raw: Raws, store: Databases, pattern: str | None, names: list[str]
) -> None:
    assert listed(raw(gateway(peer(Thrift(store)).uri, aliases=ALIASES)), pattern) == names
    # A rule about clients' names leaves out the other ones.
    rules = Rules((Rule(databases=("sales*", "odd")),))
    limited = raw(gateway(peer(Thrift(store)).uri, aliases=ALIASES, rules=rules))
    assert listed(limited, pattern) == [name for name in names if name != "public"]


def test_a_metastore_lists_no_more_databases_than_needed(
    peer: Peers, gateway: Gateways, raw: Raws, store: Databases
) -> None:
    """A list of the tables of all databases takes long."""
    connection = raw(gateway(peer(Thrift(store)).uri, aliases=ALIASES))
    for pattern in ("sales_eu", "@hive#odd", "public", "*"):
        connection.ask("get_table_meta", db_patterns=pattern, tbl_patterns="*", tbl_types=[])
    asked = [args.db_patterns for _, args in store.asked]
    assert asked == ["sales_eu|sales", "@hive#odd|a.b", "public", "*"]


def test_patterns_match_the_names_of_other_metastores(peer: Peers, stack: ExitStack) -> None:
    both = Federated(peer, stack)
    both.gateway = Gateway(both.federation, aliases={"eu": "far_sales", "home": "sales"})
    for pattern, names in (
        ("eu", ["eu"]),
        ("far_*", ["far_default"]),
        ("e*|home", ["eu", "home"]),
        ("sales", []),
    ):
        assert sorted(both.ask("get_databases", pattern=pattern)["success"]) == names
        metas = both.ask("get_table_meta", db_patterns=pattern, tbl_patterns="*", tbl_types=[])["success"]
        assert sorted(meta.dbName for meta in metas) == names


@pytest.mark.parametrize("method", PATTERNS)
def test_a_malformed_pattern_is_refused(peer: Peers, gateway: Gateways, raw: Raws, method: str) -> None:
    served = Thrift(lambda *_: [])
    connection = raw(gateway(peer(served).uri, aliases=ALIASES))
    arguments: dict[str, dict[str, Any]] = {
        "get_databases": {"pattern": "PATTERN"},
        "get_databases_req": {"request": types.GetDatabaseObjectsRequest(pattern="PATTERN")},
        "get_table_meta": {"db_patterns": "PATTERN", "tbl_patterns": "*"},
    }
    message = call_bytes(method, **arguments[method]).replace(b"PATTERN", b"P\xffTTERN")
    connection.sock.sendall(message)
    assert "a pattern that is no UTF-8" in str(outcome(*connection.message()))
    assert served.calls == []


def test_all_methods_with_patterns_of_databases_are_known() -> None:
    """Other methods take their patterns as those of tables or functions of one database."""

    def fields(method: str) -> set[str]:
        arguments = message_types(method)[0].thrift_spec.values()
        inner = [field[2].thrift_spec.values() for field in arguments if len(field) == 4 and field[0] == 12]
        return {field[1] for part in (arguments, *inner) for field in part}

    databases = {"databaseName", "dbName", "db_name", "dbname", "database"}
    found = {
        method
        for method in ACCESS
        if any("pattern" in name.lower() for name in fields(method)) and not fields(method) & databases
    }
    assert found == set(PATTERNS)
