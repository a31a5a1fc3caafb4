"""Texts that Hive puts into the SQL for its own database as they are."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_hive_federation.gateway.rules import Exposure, Rules
from airflow_hive_federation.metastore.idl import types
from tests.support.gateways import Gateways, Peers, Raws
from tests.support.metastore_peers import Thrift

#: ``ShowCompactionsAnalyzer`` writes the first three.
ORDERS = [
    '"CC_ID"\tDESC',
    'CC_COMMIT_TIME\tASC,"CC_TABLE"\tDESC',
    '"CC_DATABASE"',
    "cc_end desc , CC_START",
    "",
    " ",
]
OTHERS = [
    'CASE WHEN EXISTS (SELECT 1 FROM "DBS" WHERE "NAME" LIKE \'h%\') THEN 1/0 END',
    '"CC_ID" DESC; DROP TABLE "DBS"',
    '"CC_ID" DESC --',
    '(SELECT MAX("CC_ID") FROM "COMPLETED_COMPACTIONS")',
    '"CC_ID", 1',
    '"CC_ID" FETCH FIRST 1 ROW ONLY',
    '"CC_ID',
    ",",
    "CC_\u017f",
]
STATISTICS = [
    "set_aggr_stats_for",
    "update_partition_column_statistics",
    "update_partition_column_statistics_req",
]


@pytest.mark.parametrize("rules", [Rules(), Rules(exposure=Exposure(tables=("sales.open_*",)))])
def test_compactions_are_ordered_by_their_columns_only(
    rules: Rules, peer: Peers, gateway: Gateways, raw: Raws
) -> None:
    asked: list[str | None] = []

    def answer(method: str, args: Any) -> Any:
        asked.append(args.rqst.order)
        return types.ShowCompactResponse(compacts=[])

    connection = raw(gateway(peer(Thrift(answer)).uri, rules=rules))
    for order in [None, *ORDERS]:
        request = types.ShowCompactRequest(dbName="sales", order=order)
        assert connection.ask("show_compact", rqst=request)["success"].compacts == []
    for order in OTHERS:
        request = types.ShowCompactRequest(dbName="sales", order=order)
        message = str(connection.ask("show_compact", rqst=request))
        assert "the order of the compactions is no list of their columns" in message, order
    assert asked == [None, *ORDERS]


@pytest.mark.parametrize(
    ("partition", "permitted"),
    [
        ("p=a%27b/q=c d", True),
        (None, True),
        ('p=1\') UNION SELECT 1, 2, "TOKEN_ID" FROM "DELEGATION_TOKENS" --', False),
        ("p=1\\", False),
    ],
)
@pytest.mark.parametrize("method", STATISTICS)
def test_statistics_are_of_escaped_partitions(
    method: str, partition: str | None, permitted: bool, peer: Peers, gateway: Gateways, raw: Raws
) -> None:
    asked: list[str] = []

    def answer(method: str, args: Any) -> Any:
        asked.append(method)
        return types.SetPartitionsStatsResponse(result=True) if method.endswith("_req") else True

    first, other = (
        types.ColumnStatistics(
            statsDesc=types.ColumnStatisticsDesc(
                isTblLevel=False, dbName="sales", tableName="t", partName=name
            ),
            statsObj=[],
        )
        for name in ("p=1", partition)
    )
    arguments: dict[str, Any] = {
        "update_partition_column_statistics": {"stats_obj": other},
        "update_partition_column_statistics_req": {"req": types.SetPartitionsStatsRequest(colStats=[other])},
        "set_aggr_stats_for": {"request": types.SetPartitionsStatsRequest(colStats=[first, other])},
    }[method]
    answered = raw(gateway(peer(Thrift(answer)).uri)).ask(method, **arguments)
    assert asked == ([method] if permitted else [])
    assert ("whose name has an apostrophe" in str(answered)) is not permitted
