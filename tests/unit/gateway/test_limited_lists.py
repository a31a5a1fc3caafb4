"""Lists with a limit for callers who may see some tables only: hidden ones do not count against the limit."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_hive_federation.gateway.rules import Exposure, Rules
from airflow_hive_federation.metastore.idl import types
from tests.support.gateways import Gateways, Peers, Raws
from tests.support.metastore_peers import Thrift

#: Sixty tables, of which three are visible.
TABLES = [f"open_{number:02}" if number in {20, 40, 59} else f"t{number:02}" for number in range(60)]
VISIBLE = ["open_20", "open_40", "open_59"]


class Tables:
    """A metastore that notes the limits of the calls."""

    def __init__(self) -> None:
        self.limits: list[int | None] = []

    def __call__(self, method: str, args: Any) -> Any:
        if method == "get_table_names_by_filter":
            return self.first(args.max_tables)
        if method == "get_tables_ext":
            return [types.ExtendedTableInfo(tblName=name) for name in self.first(args.req.limit)]
        compactions = [
            types.ShowCompactResponseElement(
                dbname="sales", tablename=name, type=types.CompactionType.MAJOR, state="initiated"
            )
            for name in self.first(args.rqst.limit)
        ]
        return types.ShowCompactResponse(compacts=compactions)

    def first(self, limit: int | None) -> list[str]:
        self.limits.append(limit)
        return TABLES if limit is None or limit < 0 else TABLES[:limit]


def arguments(method: str, limit: int | None) -> dict[str, Any]:
    if method == "get_table_names_by_filter":
        return {"dbname": "sales", "filter": "f", "max_tables": limit}
    if method == "get_tables_ext":
        request = types.GetTablesExtRequest(catalog="hive", database="sales", tableNamePattern="*")
        request.limit = limit
        return {"req": request}
    return {"rqst": types.ShowCompactRequest(dbName="sales", limit=limit)}


def names(method: str, success: Any) -> list[str]:
    if method == "get_table_names_by_filter":
        return list(success)
    if method == "get_tables_ext":
        return [info.tblName for info in success]
    return [entry.tablename for entry in success.compacts]


@pytest.mark.parametrize("method", ["get_table_names_by_filter", "get_tables_ext", "show_compact"])
@pytest.mark.parametrize(
    ("limit", "limits", "shown"),
    [
        (1, [1, 8, 64], 1),
        (2, [2, 16, 128], 2),
        (6, [6, 48, 384], 3),
        (60, [60, 480], 3),
        (61, [61], 3),
        (0, [0], 0),
        (-1, [-1], 3),
    ],
)
def test_hidden_elements_do_not_shorten_a_list(
    method: str, limit: int, limits: list[int], shown: int, peer: Peers, gateway: Gateways, raw: Raws
) -> None:
    metastore = Tables()
    rules = Rules(exposure=Exposure(tables=("sales.open_*",)))
    connection = raw(gateway(peer(Thrift(metastore)).uri, rules=rules))
    found = names(method, connection.ask(method, **arguments(method, limit))["success"])
    assert found == VISIBLE[:shown]
    assert metastore.limits == limits


def test_the_limit_of_two_bytes_is_left_out_when_it_would_be_too_long(
    peer: Peers, gateway: Gateways, raw: Raws
) -> None:
    class Many(Tables):
        def first(self, limit: int | None) -> list[str]:
            self.limits.append(limit)
            hidden = ["t"] * 40_000
            return [*hidden, "open_a"] if limit is None or limit < 0 else hidden[:limit]

    metastore = Many()
    rules = Rules(exposure=Exposure(tables=("sales.open_*",)))
    connection = raw(gateway(peer(Thrift(metastore)).uri, rules=rules))
    given = arguments("get_table_names_by_filter", 5_000)
    assert connection.ask("get_table_names_by_filter", **given)["success"] == ["open_a"]
    assert metastore.limits == [5_000, -1]


def test_a_list_without_a_limit_is_asked_for_once(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    metastore = Tables()
    rules = Rules(exposure=Exposure(tables=("sales.open_*",)))
    connection = raw(gateway(peer(Thrift(metastore)).uri, rules=rules))
    assert (
        names("show_compact", connection.ask("show_compact", **arguments("show_compact", None))["success"])
        == VISIBLE
    )
    assert metastore.limits == [None]
