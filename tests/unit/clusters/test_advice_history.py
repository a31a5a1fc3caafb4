"""The files of the history, and the advice as it is shown."""

from __future__ import annotations

import argparse
import re
import xml.etree.ElementTree as ET
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from airflow_hive_federation.cli.cluster_advise import size_bytes
from airflow_hive_federation.clusters import advice_history
from airflow_hive_federation.clusters.advice_history import (
    HistoryWriter,
    history_directory,
    read_history,
    remove_old_history,
)
from airflow_hive_federation.clusters.advice_report import as_json, in_words
from airflow_hive_federation.clusters.advice_result import Advice, CopyAdvice, LeftOut
from airflow_hive_federation.clusters.advice_svg import MAX_COPIES, as_svg
from airflow_hive_federation.clusters.placement import Session
from airflow_hive_federation.clusters.registry import ClusterRegistry, read_registry
from airflow_hive_federation.clusters.routing.route import decide
from airflow_hive_federation.errors import UnknownClusterError
from airflow_hive_federation.operators.cluster_links import xcom_page
from airflow_hive_federation.storage.local import LocalFiles
from tests.support.catalogs import CLUSTERS, Catalog, placed

NOW = datetime(2026, 3, 31, 12, tzinfo=UTC)
GIB = 1 << 30


def writer(home: Path, now: datetime = NOW) -> HistoryWriter:
    return HistoryWriter(directory=str(home), run="dag/run/task/-1", source="dag.task", now=lambda: now)


def note(history: HistoryWriter, text: str = "SELECT * FROM t WHERE id = 17") -> None:
    catalog = Catalog()
    catalog.add("t", placed("C1"))
    history.note(text, Session(), decide(text, catalog, CLUSTERS, Session()))


def test_each_writer_has_a_file_of_its_own(tmp_path: Path) -> None:
    first, other = writer(tmp_path), writer(tmp_path)
    for history in (first, first, other):
        note(history)
    note(first, "USE CLUSTER C1")
    files = list(tmp_path.glob("2026-03-31/*.jsonl"))
    assert sorted(len(path.read_text().splitlines()) for path in files) == [1, 2]
    read = read_history(str(tmp_path), NOW - timedelta(days=7))
    assert [record.reads[0].table for record in read.records] == ["default.t"] * 3
    assert read.records[0].template == "select * from t where id = ?"
    assert read_history(str(tmp_path), NOW + timedelta(seconds=1)).records == ()
    assert read_history(str(tmp_path / "none"), NOW).records == ()


def test_a_file_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advice_history, "MAX_RECORDS", 2)
    history = writer(tmp_path)
    for _ in range(3):
        note(history)
    assert len(read_history(str(tmp_path), NOW).records) == 2


def test_a_damaged_line_is_named_and_the_others_count(tmp_path: Path) -> None:
    note(writer(tmp_path))
    (path,) = tmp_path.glob("*/*.jsonl")
    path.write_bytes(path.read_bytes() + b"{}\n\xff\n" + path.read_bytes())
    read = read_history(str(tmp_path), NOW)
    assert len(read.records) == 2
    assert [line.split(": ")[0].rpartition(":")[2] for line in read.damaged] == ["2", "3"]


RECORDS = f"{'0' * 32}.jsonl"


def test_records_of_old_days_are_removed_and_nothing_else(tmp_path: Path) -> None:
    for name in ("2026-02-28", "2026-03-01", "2020-01-01x", "notes", "20200101"):
        (tmp_path / name).mkdir()
        (tmp_path / name / RECORDS).touch()
    (tmp_path / "2026-02-28" / f"._copy_{RECORDS}.0-0123456789ab").touch()
    note(writer(tmp_path))
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"2026-03-01", "2026-03-31", "2020-01-01x", "notes", "20200101"}
    assert remove_old_history(str(tmp_path), date(2026, 3, 2)) == [f"{tmp_path}/2026-03-01"]


def test_a_directory_of_days_keeps_the_files_of_others(tmp_path: Path) -> None:
    """The history may lie beside other data by day, such as logs or partitions."""
    of_others = (
        *("2026-01-01/data.parquet", "2026-01-01/a.jsonl", "2026-01-02/hour=1/f", f"2026-01-02/x/{RECORDS}"),
        f"2026-01-01/._copy_data.{RECORDS}",
    )
    for path in (*of_others, f"2026-01-01/{RECORDS}", f"2026-01-02/{RECORDS}", f"2026-01-03/{RECORDS}"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("1")
    assert remove_old_history(str(tmp_path), date(2026, 3, 2)) == [f"{tmp_path}/2026-01-03"]
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == set(of_others)


def test_two_first_writers_of_a_day_may_remove_the_same_old_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "2026-01-01"
    old.mkdir()
    (old / RECORDS).touch()
    exists = LocalFiles.exists

    def exists_until_the_other_writer_removes_it(store: LocalFiles, path: str) -> bool:
        existed = bool(exists(store, path))
        if path == str(old):
            old.rmdir()
        return existed

    monkeypatch.setattr(LocalFiles, "exists", exists_until_the_other_writer_removes_it)
    note(writer(tmp_path))
    assert len(read_history(str(tmp_path), NOW).records) == 1
    assert not old.exists()


def test_a_history_that_cannot_be_written_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    history = writer(tmp_path / "file")
    note(history)
    note(history)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "is not written" in caplog.text


def test_the_history_lies_below_the_default_cluster_unless_it_is_named() -> None:
    properties = {"C1": {"fileSystem": "/data/c1", "jobTracker": "spark"}}
    registry = read_registry(
        {"hive.cluster.properties": properties, "hive.default.cluster.name": "C1"}, origin="the test"
    )
    assert history_directory(registry) == "file:/data/c1/_hive_federation/history"
    assert history_directory(ClusterRegistry(), "s3://logs/history") == "s3://logs/history"
    with pytest.raises(UnknownClusterError):
        history_directory(ClusterRegistry())


def some_advice(number: int = 1) -> Advice:
    window = CopyAdvice(
        table="sales.orders",
        cluster="C2",
        source="C1",
        keys=("day", "region"),
        key="day",
        days=30,
        copied_bytes=300 * GIB,
        kept_bytes=60 * GIB,
        saved_bytes=2100 * GIB,
        statements=3,
        runs=21,
    )
    named = CopyAdvice(
        table="web.clicks",
        cluster="C3",
        source="C1",
        keys=("name",),
        partitions=(("<&>\x07",), ("b:c",)),
        copied_bytes=2 * GIB,
        saved_bytes=9 * GIB,
        statements=1,
        runs=7,
    )
    left = LeftOut(
        template="select ? from x", source="dag.task", runs=1, crossing_bytes=5, why="it is seldom"
    )
    return Advice(
        days=7, budget_bytes=None, copies=(window, *[named] * number), left_out=(left,), statements=4, runs=28
    )


def test_words_name_rules_partitions_and_what_is_left_out() -> None:
    text = in_words(some_advice())
    row = next(line for line in text.splitlines() if line.startswith("last 30 days"))
    cells = ["last 30 days of sales.orders by day in C2", "322.1 GB", "64.4 GB", "2.3 TB", "5.8"]
    assert re.split(r"  +", row) == [*cells, "21 runs of 3 statements"]
    assert (
        "hive-federation cluster copy web.clicks C3 --partition 'name=<&>%07' --partition 'name=b%3Ac'"
        in text
    )
    assert "1 run of dag.task (5 bytes): it is seldom\n    select ? from x" in text
    assert "No copy would save" in in_words(Advice(days=7, budget_bytes=0))
    rules = [copy["rule"] for copy in as_json(some_advice())["copies"]]
    assert rules == ["last 30 days of sales.orders by day in C2", None]


def test_the_picture_is_xml_and_bounded() -> None:
    space = "{http://www.w3.org/2000/svg}"
    for advice, bars in (
        (some_advice(), 4),
        (some_advice(99), 2 * MAX_COPIES),
        (Advice(days=7, budget_bytes=0), 0),
    ):
        root = ET.fromstring(as_svg(advice))
        drawn = [bar for bar in root.iter(f"{space}rect") if bar.get("class") in {"saved", "copied"}]
        # Two of them are the legend's.
        assert len(drawn) - 2 == bars
        widths = [int(str(bar.get("width"))) for bar in drawn]
        assert all(0 < width < 960 for width in widths)
    assert "prefers-color-scheme: dark" in as_svg(some_advice())


def test_sizes_have_units() -> None:
    sizes = [size_bytes(text) for text in ("10", "10B", "10TB", "1.5 kib", "2g", "0")]
    assert sizes == [10, 10, 10**13, 1536, 2 * 10**9, 0]
    for text in ("", "-1", "10XB", "ten", "1,5GB"):
        with pytest.raises(argparse.ArgumentTypeError, match="is no size"):
            size_bytes(text)


def test_a_link_leads_to_the_xcoms_of_its_task() -> None:
    key = SimpleNamespace(dag_id="a", run_id="manual__2026-03-31T00:00:00+00:00", task_id="b/c", map_index=-1)
    assert xcom_page(key).endswith("/dags/a/runs/manual__2026-03-31T00%3A00%3A00%2B00%3A00/tasks/b%2Fc/xcom")
    key.map_index = 0
    assert xcom_page(key).endswith("/tasks/b%2Fc/mapped/0/xcom")
