"""The partitions to which a cycle's transactions wrote."""

from __future__ import annotations

from typing import Any, cast

import pytest

from airflow_hive_federation.errors import UnsupportedMethodError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.dump.written_partitions import WriteRecords


class Source:
    """A metastore that keeps records of writes: pairs of table and partition by transaction."""

    def __init__(self, records: dict[int, list[tuple[str, str | None]]]) -> None:
        self.records, self.asked = records, 0

    def call(self, method: str, request: Any) -> list[types.WriteEventInfo]:
        assert (method, request.dbName) == ("get_all_write_event_info", "d")
        self.asked += 1
        return [
            types.WriteEventInfo(table=table, partition=partition)
            for table, partition in self.records[request.txnId]
        ]

    @property
    def client(self) -> MetastoreClient:
        return cast("MetastoreClient", self)


def records() -> WriteRecords:
    return WriteRecords("d", lambda name: {"old": "t"}.get(name, name))


def test_each_transaction_is_asked_for_once() -> None:
    source = Source({1: [("T", "p=1"), ("t", "p=2"), ("u", "p=9")], 2: [("t", "p=1"), ("old", "p=3")]})
    written = records()
    assert written.partitions(source.client, "t", [1, 2]) == {"p=1", "p=2", "p=3"}
    assert written.partitions(source.client, "u", [1]) == {"p=9"}
    assert written.partitions(source.client, "t", []) == set()
    assert source.asked == 2


@pytest.mark.parametrize("second", [[], [("u", "p=1")], [("t", None)], [("t", "p=2"), ("t", "")]])
def test_a_transaction_without_a_record_of_a_partition_says_nothing(second: Any) -> None:
    source = Source({1: [("t", "p=1")], 2: second})
    assert records().partitions(source.client, "t", [1, 2]) is None


def test_an_older_metastore_keeps_no_records() -> None:
    class Older(Source):
        def call(self, method: str, request: Any) -> list[types.WriteEventInfo]:
            raise UnsupportedMethodError(method)

    assert records().partitions(Older({}).client, "t", [1]) is None
