"""The command line's and the operators' side of compaction, as far as it needs no server."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from airflow_hive_federation.cli.main import build_parser, main
from airflow_hive_federation.compaction import requests
from airflow_hive_federation.compaction.requests import partitions_of
from airflow_hive_federation.compaction.worker import CompactionReport
from airflow_hive_federation.errors import ConfigurationError, NoSuchObjectError
from airflow_hive_federation.metastore import MetastoreClient


def test_the_command_line_is_understood() -> None:
    args = build_parser().parse_args(
        ["compact", "sales.orders", "--kind", "minor", "--partition", "day=1", "--partition", "day=2"]
    )
    assert (args.command, args.table, args.kind, args.partition) == (
        "compact",
        "sales.orders",
        "minor",
        ["day=1", "day=2"],
    )
    assert build_parser().parse_args(["compact", "worker", "--until-empty"]).until_empty
    with pytest.raises(SystemExit):
        build_parser().parse_args(["compact", "sales.orders", "--kind", "sideways"])


def report(state: str, *, unneeded: bool = False, partition: str = "") -> CompactionReport:
    return CompactionReport(
        id=1,
        table="d.t",
        partition=partition,
        kind="major",
        state=state,
        message="No partition p=9." if state == "refused" else "",
        unneeded=unneeded,
    )


@pytest.mark.parametrize(
    ("reports", "status", "text"),
    [
        ([report("compacted")], 0, "d.t: compacted."),
        ([report("refused", unneeded=True)], 0, "d.t: nothing to compact. A major compaction needs files"),
        ([report("refused", partition="p=9")], 1, "d.t p=9: refused. No partition p=9."),
        ([report("refused", unneeded=True), report("failed")], 1, "d.t: failed."),
    ],
)
def test_the_exit_status_is_one_unless_nothing_was_left_to_do(
    reports: Sequence[CompactionReport],
    status: int,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def compact_table(*_: object, on_report: Any, **__: object) -> Sequence[CompactionReport]:
        for each in reports:
            on_report(each)
        return reports

    monkeypatch.setattr(requests, "compact_table", compact_table)
    assert main(["compact", "d.t", "--metastore", "thrift://127.0.0.1:1"]) == status
    assert text in capsys.readouterr().err


def test_an_empty_name_of_a_partition_does_not_mean_all() -> None:
    keys = [SimpleNamespace(name="day")]
    table = SimpleNamespace(partitionKeys=keys, parameters={"transactional": "true"})
    there = [SimpleNamespace(values=["1"])]
    client = cast(
        "MetastoreClient",
        SimpleNamespace(
            get_table=lambda _database, _name: table, get_partitions_of=lambda _database, _name, _names: there
        ),
    )
    with pytest.raises(
        NoSuchObjectError,
        match=r"d\.t, whose partition keys are day, has no partition day=2 \(nor 1 other\)",
    ):
        partitions_of(client, "d.t", ["day=1", "day=2", "day=3"])
    with pytest.raises(ConfigurationError, match=r"'d' names no table"):
        partitions_of(client, "d")
    assert partitions_of(client, "d.t", ["day=1"]) == ["day=1"]
    with pytest.raises(ConfigurationError, match="empty text"):
        partitions_of(client, "d.t", ["day=1", ""])
