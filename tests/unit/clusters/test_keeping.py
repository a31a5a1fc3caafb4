"""Rules of copies, and the partitions that events name."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any, cast

import pytest

from airflow_hive_federation.clusters import keeping
from airflow_hive_federation.clusters.copies.copying import CopyReport
from airflow_hive_federation.clusters.keep_rules import KeepRule, read_rule
from airflow_hive_federation.clusters.keeping import keep_current
from airflow_hive_federation.clusters.keeping_events import changes_of
from airflow_hive_federation.clusters.notes import Kind, Note, take_note, uri_of_note
from airflow_hive_federation.clusters.registry import read_registry
from airflow_hive_federation.errors import ConfigurationError, CopyRefusedError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.storage.filesystem import local_path
from tests.support.one_table import OneTable
from tests.support.two_clusters import two_clusters

TODAY = date(2026, 3, 31)
KEYS = ["day", "region"]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("last 30 days of Sales.Orders in C2", KeepRule(table="sales.orders", cluster="C2", days=30)),
        ("LAST 1 day OF a.b BY Day IN c_2", KeepRule(table="a.b", cluster="c_2", days=1, key="day")),
        (" all  of a.b in C2 ", KeepRule(table="a.b", cluster="C2")),
        (
            "last 2 days of a.b in C2  Dropping older",
            KeepRule(table="a.b", cluster="C2", days=2, drop_older=True),
        ),
    ],
)
def test_rules_are_read_and_written(text: str, rule: KeepRule) -> None:
    assert read_rule(text) == rule
    assert read_rule(str(rule)) == rule


@pytest.mark.parametrize(
    "text",
    [
        "",
        "last 0 days of a.b in C2",
        "last days of a.b in C2",
        "all of b in C2",
        "all of a.b by day in C2",
        "all of a.b in",
        "all of a.b in C2; drop",
        "all of a.b in C2 dropping older",
        "last 2 days of a.b in C2 dropping",
    ],
)
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is no rule of copies"):
        read_rule(text)


def test_a_window_has_its_days_and_those_to_come() -> None:
    rule = read_rule("last 2 days of a.b in C2")
    names = [f"day={day}" for day in ("2026-03-29", "2026-03-30", "20260331", "2026-04-01", "later")]
    assert rule.chosen(names, ["day"], TODAY) == names[1:4]
    assert read_rule("all of a.b in C2").chosen(names, ["day"], TODAY) == names
    beside = ["region=e%3Au/day=2026-03-31", "region=e%3Au/day=__HIVE_DEFAULT_PARTITION__"]
    assert rule.chosen(beside, ["region", "day"], TODAY) == beside[:1]
    assert rule.chosen([], ["day"], TODAY) == []
    assert rule.chosen(["day=2020-01-01"], ["day"], TODAY) == []


def test_a_rule_drops_only_what_has_a_day_before_its_window() -> None:
    names = [f"day={day}" for day in ("2026-03-29", "2026-03-30", "20260331", "2026-04-01", "later")]
    rule = read_rule("last 2 days of a.b in C2 dropping older")
    assert rule.older(names, ["day"], TODAY) == names[:1]
    assert rule.chosen(names, ["day"], TODAY) == names[1:4]
    # Without the words, nothing is dropped.
    keeping = read_rule("last 2 days of a.b in C2")
    assert keeping.older(names, ["day"], TODAY) == []
    assert keeping.digest != rule.digest
    with pytest.raises(ConfigurationError, match=r"no partition of a\.b has a day in m"):
        rule.older(["m=202603"], ["m"], TODAY)


@pytest.mark.parametrize(
    ("rule", "keys", "names", "why"),
    [
        ("last 2 days of a.b by hour in C2", ["day"], ["day=20260331"], "no partition key hour"),
        ("last 2 days of a.b in C2", ["x", "y"], ["x=20260331/y=20260331"], "several keys with days: x, y"),
        ("last 2 days of a.b in C2", [], [], "no partition keys"),
        (
            "last 2 days of a.b in C2 dropping older",
            ["customer", "y"],
            ["customer=20250101/y=e"],
            "a.b has several partition keys",
        ),
        # Otherwise the rule would keep nothing, and nobody would know.
        ("last 2 days of a.b in C2", ["m"], ["m=202603", "m=202604"], "no partition of a.b has a day in m"),
        (
            "last 2 days of a.b by x in C2",
            ["x", "y"],
            ["x=e/y=20260331"],
            "no partition of a.b has a day in x",
        ),
    ],
)
def test_a_rule_that_does_not_fit_names_the_key(
    rule: str, keys: list[str], names: list[str], why: str
) -> None:
    with pytest.raises(ConfigurationError, match=why):
        read_rule(rule).chosen(names, keys, TODAY)


def event(number: int, kind: str, message: Any = None, *, table: str = "b", database: str = "a") -> Any:
    return types.NotificationEvent(
        eventId=number,
        eventTime=0,
        eventType=kind,
        dbName=database,
        tableName=table,
        message=json.dumps(message or {}),
        messageFormat="json-0.2",
    )


def thrift_table(name: str) -> str:
    return json.dumps({"1": {"str": name}, "2": {"str": "a"}})


def folded(*events: Any, keys: list[str] = KEYS, after: int = 0, up_to: int | None = None) -> tuple[Any, str]:
    changes = changes_of(events, "a", "b", keys, after=after, up_to=len(events) if up_to is None else up_to)
    return changes.names, changes.anew


ADDED = {"partitions": [{"day": "2026-03-31", "region": "e:u"}]}
INSERTED = {"ptnObjJson": json.dumps({"1": {"lst": ["str", 2, "2026-03-30", "us"]}})}


def test_partitions_of_the_table_are_named() -> None:
    names = {"day=2026-03-31/region=e%3Au", "day=2026-03-30/region=us"}
    assert folded(event(1, "ADD_PARTITION", ADDED), event(2, "INSERT", INSERTED)) == (names, "")
    others = [
        event(1, "ADD_PARTITION", ADDED, table="other"),
        event(2, "ADD_PARTITION", ADDED, database="other"),
        event(3, "OPEN_TXN", {"txnIds": [1]}, table="", database=""),
        event(4, "ALTER_TABLE", {"tableObjBeforeJson": thrift_table("b")}),
        event(5, "UPDATE_PART_COL_STAT_EVENT"),
    ]
    assert folded(*others) == (set(), "")
    # A table without partitions is its own object.
    assert folded(event(1, "INSERT", {}), keys=[]) == ({""}, "")
    assert folded(event(1, "ALTER_TABLE", {"tableObjBeforeJson": thrift_table("b")}), keys=[]) == ({""}, "")


@pytest.mark.parametrize(
    "doubtful",
    [
        event(1, "ADD_PARTITION", {"partitions": [{"day": "2026-03-31"}]}),
        event(1, "ADD_PARTITION", {"partitions": 7}),
        event(1, "INSERT", {}),
        event(1, "ALTER_TABLE", {"tableObjBeforeJson": thrift_table("before")}),
        event(1, "ALTER_TABLE", {}, table="other"),
        event(1, "CREATE_TABLE", {}),
        event(1, "RELOAD", {}),
        event(1, "SOMETHING_NEW", {}),
    ],
    ids=lambda event: event.eventType if isinstance(event, types.NotificationEvent) else "",
)
def test_an_event_that_does_not_name_partitions_means_all(doubtful: Any) -> None:
    assert folded(doubtful)[1] != ""


def test_a_commit_means_all_of_a_transactional_table() -> None:
    ends = [event(1, "COMMIT_TXN", {"txnid": 1}, table="", database="")]
    aborted = [event(1, "ABORT_TXN", {"txnid": 1}, table="", database="")]
    for events, transactional, anew in ((ends, True, True), (ends, False, False), (aborted, True, False)):
        changes = changes_of(events, "a", "b", KEYS, after=0, up_to=1, transactional=transactional)
        assert bool(changes.anew) is anew


def test_events_that_were_cleaned_away_mean_all() -> None:
    assert folded(event(3, "DROP_FUNCTION"), after=1, up_to=3)[1] == "the metastore has no event 2 any more"
    assert folded(event(2, "OPEN_TXN", {"txnIds": [1]}), after=1, up_to=3)[1] != ""
    assert folded(after=1, up_to=1) == (set(), "")


class OldPartition:
    """A metastore without events, with a table of one partition, of long ago, that has a copy in C2."""

    table = types.Table(
        dbName="a",
        tableName="b",
        tableType="EXTERNAL_TABLE",
        sd=types.StorageDescriptor(location="file:/C1/a.db/b"),
        partitionKeys=[types.FieldSchema(name="day", type="string")],
    )

    def get_table(self, _database: str, _name: str) -> types.Table:
        return self.table

    def list_partition_names(self, _database: str, _table: str) -> list[str]:
        return ["day=2020-01-01"]

    def get_partitions_of(self, _database: str, _table: str, names: list[str]) -> list[types.Partition]:
        copy = {
            "hive.cluster.secondary.C2.location": "file:/C2/a.db/b/day=2020-01-01/copy-1",
            "hive.cluster.secondary.C2.source": "1:m:1:1:c:l",
        }
        return [types.Partition(values=[name.removeprefix("day=")], parameters=copy) for name in names]


def test_a_registry_in_which_the_cluster_is_the_primary_drops_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dropped: list[Any] = []

    def drop(*_: Any, partitions: list[str], **__: Any) -> CopyReport:
        dropped.extend(partitions)
        return CopyReport(table="a.b", cluster="C2")

    monkeypatch.setattr(keeping, "keeps_events", lambda _: False)
    monkeypatch.setattr(keeping, "identity_of", lambda _: "")
    monkeypatch.setattr(keeping, "drop_copies", drop)
    rule = read_rule("last 2 days of a.b in C2 dropping older")
    properties = {name: {"fileSystem": f"/{name}", "jobTracker": name} for name in ("C1", "C2")}

    def keep(default: str) -> None:
        document = {"hive.cluster.properties": properties, "hive.default.cluster.name": default}
        registry = read_registry(document, origin="the test")
        keep_current(cast("Any", OldPartition()), registry, rule, pytest.fail, today=TODAY)

    with pytest.raises(CopyRefusedError, match="C2 is its primary cluster"):
        keep("C2")
    assert dropped == []
    keep("C1")
    assert dropped == ["day=2020-01-01"]


class NoPartitions(OneTable):
    """A partitioned table without partitions."""

    def list_partition_names(self, _database: str, _table: str) -> list[str]:
        return []


def test_a_rule_that_removes_copies_at_once_leaves_former_primaries_to_their_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The former primary has just been left, and statements that were planned before read it."""
    monkeypatch.setattr(keeping, "keeps_events", lambda _: False)
    monkeypatch.setattr(keeping, "identity_of", lambda _: "")
    registry = two_clusters(tmp_path / "C1", tmp_path / "C2")
    keys = [types.FieldSchema(name="day", type="string")]
    store = NoPartitions(types.Table(dbName="d", tableName="t", partitionKeys=keys, createTime=1))
    former, copy = (tmp_path / "C2" / "d.db" / name for name in ("t", "t.copies/copy-1"))
    for place, kind in ((former, Kind.FORMER_PRIMARY), (copy, Kind.COPY)):
        place.mkdir(parents=True)
        take_note(registry.cluster("C2"), Note.of(store.table, kind, f"file:{place}", files={}))
    # A damaged note of another table stops no rule of this one.
    other = types.Table(dbName="d", tableName="u", createTime=1)
    damaged = Note.of(other, Kind.COPY, f"file:{tmp_path}/C2/d.db/u.copies/copy-1")
    take_note(registry.cluster("C2"), damaged)
    damaged_file = Path(str(local_path(uri_of_note(registry.cluster("C2"), damaged))))
    damaged_file.write_text("{", encoding="utf-8")
    rule = read_rule("all of d.t in C2")
    report = keep_current(store.client, registry, rule, pytest.fail, at_once=True)
    assert damaged_file.is_file()
    assert (report.removed, report.left) == ([f"file:{copy}"], [f"file:{former}"])
    assert former.is_dir()
    assert keep_current(store.client, registry, rule, pytest.fail).left == [f"file:{former}"]
