"""Golden tables in a metastore."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from airflow_hive_federation.model.partitions import DEFAULT_PARTITION
from airflow_hive_federation.model.types import Column
from airflow_hive_federation.model.write_ids import ValidTxns, ValidWriteIds
from airflow_hive_federation.transactions.snapshots import Snapshot

GOLDEN = Path(__file__).parents[1] / "golden"


class GoldenTable:
    """A golden table; answers a reader's calls of the metastore client."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.description = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
        self.location = GOLDEN / name
        self.columns = [Column.of(*column) for column in self.description["columns"]]
        self.keys = [Column.of(*key) for key in self.description["partition_keys"]]

    @property
    def snapshot(self) -> Snapshot | None:
        text = self.description["write_ids"]
        if text is None:
            return None
        return Snapshot(write_ids=ValidWriteIds.parse(text), txns=ValidTxns.parse(self.description["txns"]))

    @property
    def expected(self) -> list[tuple[Any, ...]]:
        kinds = [column.type.name for column in [*self.columns, *self.keys]]
        return sorted((_parsed_row(row, kinds) for row in self.description["rows"]), key=repr)

    @property
    def expected_with_ids(self) -> list[tuple[Any, ...]]:
        kinds = ["struct", *(column.type.name for column in [*self.columns, *self.keys])]
        rows = [_parsed_row(row, kinds) for row in self.description["rows_with_id"]]
        if self.keys:
            # Hive's ROW__ID lacks the partition, without which it is not unique.
            for row_id, *values in rows:
                texts = values[-len(self.keys) :]
                row_id["partition"] = [DEFAULT_PARTITION if text is None else text for text in texts]
        return sorted(rows, key=repr)

    def get_table(self, database: str, table: str) -> Any:
        return SimpleNamespace(
            dbName=database,
            tableName=table,
            tableType="MANAGED_TABLE",
            parameters=self.description["parameters"],
            partitionKeys=[SimpleNamespace(name=n, type=t) for n, t in self.description["partition_keys"]],
            sd=SimpleNamespace(
                location=self.location.as_uri(),
                cols=[SimpleNamespace(name=n, type=t) for n, t in self.description["columns"]],
                inputFormat=self.description["input_format"],
                serdeInfo=SimpleNamespace(
                    serializationLib="org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe", parameters={}
                ),
            ),
        )

    def iter_partitions(self, database: str, table: str, *, names: Sequence[str] | None = None) -> Any:
        for partition in self.description["partitions"]:
            if names is None or partition["path"] in names:
                location = f"file:{self.location}/{partition['path']}"
                storage = {**vars(self.get_table(database, table).sd), "location": location}
                yield SimpleNamespace(values=partition["values"], sd=SimpleNamespace(**storage))


def _parsed_row(row: Sequence[Any], kinds: Sequence[str]) -> tuple[Any, ...]:
    return tuple(_parsed(value, kind) for value, kind in zip(row, kinds, strict=True))


def _parsed(value: str | None, kind: str) -> Any:
    # A null string partition: Hive prints the directory's name, we give null.
    if value is None or value == DEFAULT_PARTITION:
        return None
    if kind in {"float", "double"}:
        number = float(value)
        return "NaN" if math.isnan(number) else (number, math.copysign(1, number))
    if kind == "decimal":
        return Decimal(value).normalize()
    if kind in {"array", "map", "struct"}:
        return json.loads(value)
    if kind.startswith("timestamp"):
        return value.removesuffix(" UTC").removesuffix(".0")
    return value
