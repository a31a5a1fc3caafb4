"""JSON that anybody may have put into a parameter, marker or dump: nested too deep, one typed error."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.acid.markers import _is_marked_compacted
from airflow_hive_federation.errors import (
    AcidFormatError,
    ConfigurationError,
    DumpCorruptError,
    HiveFederationError,
    RemoteError,
)
from airflow_hive_federation.ingest.inputs import Position
from airflow_hive_federation.ingest.queries import KeyPosition
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.metastore.idl.types import Table
from airflow_hive_federation.model import json_values
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.model.view_text import Renaming
from airflow_hive_federation.model.views import reason_to_leave_out, text_claim
from airflow_hive_federation.remotes.links import NAME, PROPERTIES, link_of
from airflow_hive_federation.remotes.statement import Kind, Name
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.metadata.statistics import is_accurate
from airflow_hive_federation.replication.replica.cycle_history import read_cycles
from airflow_hive_federation.replication.replica.markers import CYCLES
from airflow_hive_federation.spark.streaming_sink import HiveStreamingSink, StreamPosition
from airflow_hive_federation.storage.fence import TICKET, fence_of
from airflow_hive_federation.storage.plan_files import read_records

DEEP = "[" * 100_000
SETTINGS = MetastoreSettings(uris=("thrift://localhost:1",))


def trino() -> Table:
    text = f"/* Presto View: {base64.b64encode(DEEP.encode()).decode()} */"
    return Table(tableName="v", parameters={"presto_view": "true"}, viewOriginalText=text)


def test_a_trino_view_stays_out() -> None:
    reason = reason_to_leave_out(trino(), Renaming(source_database="a", target_database="b"))
    assert reason is not None
    assert "as Trino encodes it" in reason
    assert text_claim(trino()) == trino().viewOriginalText


def test_flags_of_statistics_are_not_believed() -> None:
    assert not is_accurate({"COLUMN_STATS_ACCURATE": DEEP}, ["c"])


def test_former_cycles_are_unknown() -> None:
    assert read_cycles({CYCLES: DEEP}) == []


def of_file(name: str, read: Callable[[str], Any]) -> Callable[[Path], Any]:
    def ask(folder: Path) -> Any:
        (folder / name).write_text(DEEP, encoding="ascii")
        return read(f"file:{folder}")

    return ask


ASKED: dict[str, tuple[type[HiveFederationError], Callable[[Path], Any]]] = {
    "a remote's properties": (
        RemoteError,
        lambda _: link_of(Kind.TABLE, Name(table="t"), {NAME: "a.b", PROPERTIES: DEEP}),
    ),
    "a position in files": (ConfigurationError, lambda _: Position.of(DEEP)),
    "a position in a query": (ConfigurationError, lambda _: KeyPosition.of(DEEP, ["id"])),
    "a position of Spark": (
        ConfigurationError,
        lambda _: HiveStreamingSink(SETTINGS, "d.t", name="s")._position(DEEP),
    ),
    "a marker of Hive's": (
        AcidFormatError,
        of_file("_metadata_acid", lambda uri: _is_marked_compacted(f"{uri}/_metadata_acid", None)),
    ),
    "a fence's ticket": (DumpCorruptError, of_file(TICKET, lambda uri: fence_of(f"{uri}/plan"))),
    "a copy plan": (
        DumpCorruptError,
        of_file("p.jsonl", lambda uri: list(read_records(f"{uri}/p.jsonl", CopyItem))),
    ),
    "lines of a dump": (
        DumpCorruptError,
        of_file(
            "x.jsonl", lambda uri: list(DumpDirectory(uri).read_report("x.jsonl", json_values.json_object))
        ),
    ),
}


@pytest.mark.parametrize("case", ASKED)
def test_is_a_typed_error(case: str, tmp_path: Path) -> None:
    kind, ask = ASKED[case]
    with pytest.raises(kind):
        ask(tmp_path)


@pytest.mark.parametrize("text", [DEEP, "null", "{"], ids=["deep", "null", "cut"])
def test_a_manifest_that_is_none(tmp_path: Path, text: str) -> None:
    import hashlib

    (tmp_path / "_manifest.json").write_text(text, encoding="ascii")
    (tmp_path / "_finished_dump").write_text(hashlib.sha256(text.encode()).hexdigest(), encoding="ascii")
    with pytest.raises(DumpCorruptError, match="JSON"):
        DumpDirectory(f"file:{tmp_path}").manifest()


@pytest.mark.parametrize("number", ["1e999", "Infinity", '"x"', "null"])
def test_a_position_of_spark_is_a_number(number: str) -> None:
    sink = HiveStreamingSink(SETTINGS, "d.t", name="s")
    assert sink._position(json.dumps({"query": "q", "batch": 5})) == StreamPosition(query="q", batch=5)
    with pytest.raises(ConfigurationError, match="is not the position of a query"):
        sink._position(f'{{"query":"q","batch":{number}}}')
