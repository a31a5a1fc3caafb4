"""Orders of lists of compactions, which Hive puts into its SQL as they are."""

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
