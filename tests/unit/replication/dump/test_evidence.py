"""A replica loses nothing that neither an event nor the policy explains, whatever a source does not show."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_hive_federation.errors import SourceDirectoryMissingError, UnexplainedRemovalError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model import events as ev
from airflow_hive_federation.model.write_ids import ValidTxns
from airflow_hive_federation.replication.dump.contents import is_published, visible_files
from airflow_hive_federation.replication.dump.evidence import Evidence, judge_tables
from airflow_hive_federation.replication.dump.removals import (
    Losses,
    Unexplained,
    losses_of,
    partitions_before,
    refuse_unexplained,
)
from airflow_hive_federation.replication.dump.source import ReplicatedSource
from airflow_hive_federation.replication.dump.source_directories import (
    LostFiles,
    Sightings,
    new_directories_missing,
)
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.format.tables import PartitionLine, TableDocument
from airflow_hive_federation.replication.metadata.definitions import name_of, table_kind
from airflow_hive_federation.replication.metadata.table_locations import TableLocations
from airflow_hive_federation.replication.policy import ReplicationPolicy
from tests.support.dumps import manifest

POLICY = ReplicationPolicy(name="p", source_database="db", target_database="copy", dump_root="file:/dumps")
NAMES = st.sampled_from(["a", "b", "c", "d", "e"])


def event(kind: type[ev.Event], *, of: str = "?", database: str = "db", **fields: Any) -> ev.Event:
    return kind(event_id=1, event_type=of, database=database, **fields)


def evidence(*events: ev.Event) -> Evidence:
    made = Evidence("db")
    for event in events:
        made.add(event)
    return made


def renamed(old: str, new: str, database: str = "db") -> ev.Event:
    return event(ev.TableAltered, table=new, old_table=old, old_database="db", database=database)


EXPLAINING = st.one_of(
    st.builds(lambda name: event(ev.TableDropped, table=name), NAMES),
    st.builds(lambda name: renamed(name, "elsewhere"), NAMES),
    st.builds(lambda name: renamed(name, name, database="other"), NAMES),
)
OTHERS = st.one_of(
    st.builds(lambda name: event(ev.TableDropped, table=name, database="other"), NAMES),
    st.builds(lambda name: event(ev.TableCreated, table=name), NAMES),
    st.builds(lambda name: event(ev.Inserted, table=name, overwritten=True), NAMES),
    st.builds(lambda name: event(ev.PartitionsChanged, table=name, gone=("p=1",)), NAMES),
    st.builds(
        lambda name: event(ev.TableAltered, table=name, old_table=name, old_database="db", truncated=True),
        NAMES,
    ),
)


@given(
    there=st.sets(NAMES),
    listed=st.sets(NAMES),
    skipped=st.sets(NAMES),
    explaining=st.lists(EXPLAINING),
    others=st.lists(OTHERS),
)
def test_a_table_goes_because_of_an_event(
    there: set[str], listed: set[str], skipped: set[str], explaining: list[ev.Event], others: list[ev.Event]
) -> None:
    """Whatever the source lists: nothing, a part, or something else under the same name."""
    reasons = dict.fromkeys(skipped - listed, "it is kept by Iceberg")
    judged = judge_tables(
        there,
        replicated=listed,
        skipped=reasons,
        selects=POLICY.replicates,
        evidence=evidence(*explaining, *others),
    )
    known = {
        cast("Any", event).old_table if isinstance(event, ev.TableAltered) else cast("Any", event).table
        for event in explaining
    }
    assert judged.dropped <= known
    assert not judged.dropped & (listed | reasons.keys())
    # Each of the target's tables has one fate.
    fates = [judged.dropped, frozenset(judged.kept), judged.unexplained, frozenset(there & listed)]
    assert frozenset().union(*fates) == there
    assert sum(map(len, fates)) == len(there)
    if judged.unexplained:
        with pytest.raises(UnexplainedRemovalError) as error:
            refuse_unexplained(POLICY, Unexplained(tables=judged.unexplained))
        assert error.value.tables == sorted(judged.unexplained)
        refuse_unexplained(
            replace(POLICY, max_unexplained_tables=len(judged.unexplained)),
            Unexplained(tables=judged.unexplained),
        )


def test_the_policy_explains_a_drop() -> None:
    policy = replace(POLICY, exclude_tables="b")
    judged = judge_tables(
        "abcd",
        replicated=(),
        skipped={"b": "the policy leaves it out", "d": "it is a materialized view"},
        selects=policy.replicates,
        evidence=evidence(),
        unwanted={"c"},
    )
    assert (sorted(judged.dropped), sorted(judged.unexplained)) == (["b", "c"], ["a"])
    assert judged.kept == {"d": "it is a materialized view"}


def test_a_database_that_was_dropped_explains_everything() -> None:
    dropped = evidence(event(ev.DatabaseEvent, of="DROP_DATABASE"))
    assert dropped.of_table("a")
    assert dropped.of_partition("a", "p=1")
    assert dropped.of_files("a")
    assert dropped.of_function("f")
    altered = evidence(event(ev.DatabaseEvent, of="ALTER_DATABASE"))
    assert not altered.of_table("a")


def test_a_table_that_was_made_again_is_there_whether_it_is_listed_or_not() -> None:
    dropped, made = event(ev.TableDropped, table="a"), event(ev.TableCreated, table="a")
    back = event(ev.TableAltered, table="a", old_table="b", old_database="db")
    dropped_database = event(ev.DatabaseEvent, of="DROP_DATABASE")
    for again in (made, back):
        for before in (dropped, renamed("a", "b"), dropped_database):
            noted = evidence(before, again)
            assert not noted.of_table("a")
            # What lay in the former one is gone all the same.
            assert noted.of_partition("a", "p=1")
            assert evidence(before, again, before).of_table("a")


def test_events_of_another_database_have_no_effect() -> None:
    noted = evidence(
        event(ev.TableDropped, table="a", database="other"),
        event(ev.PartitionsChanged, table="a", gone=("p=1",), truncated=("p=2",), database="other"),
        event(ev.FunctionEvent, of="DROP_FUNCTION", function="f", database="other"),
        event(ev.DatabaseEvent, of="DROP_DATABASE", database="other"),
    )
    assert not noted.of_table("a")
    assert not noted.of_partition("a", "p=1")
    assert not noted.of_files("a", "p=2")
    assert not noted.of_function("f")


def test_functions() -> None:
    noted = evidence(
        event(ev.FunctionEvent, of="DROP_FUNCTION", function="f"),
        event(ev.FunctionEvent, of="CREATE_FUNCTION", function="g"),
    )
    assert (noted.of_function("F"), noted.of_function("g"), sorted(noted.functions)) == (True, False, ["f"])


# -- partitions and files ----------------------------------------------------------------------------------


class Source:
    """A table with partitions p=1 and p=2 in its directory and p=3 elsewhere, and the dump of it."""

    def __init__(self, root: Path, kind: str, *, partitioned: bool = True) -> None:
        self.root, self.kind, self.partitioned = root / "store" / "t", kind, partitioned
        self.parameters = {
            "external": {"EXTERNAL": "TRUE"},
            "managed": {},
            "acid": {"transactional": "true", "transactional_properties": "insert_only"},
        }[kind]
        self.places = {"1": self.root / "p=1", "2": self.root / "p=2", "3": root / "elsewhere" / "p=3"}
        for place in self.files().values():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text("1\n", encoding="utf-8")
        (root / "elsewhere").mkdir(exist_ok=True)
        (root / "elsewhere" / "other").touch()
        self.dump = DumpDirectory(f"file:{root}/dump")
        table, partitions = self.wire(), self.partitions("123")
        self.dump.write_table(TableDocument(table=table, kind=table_kind(table)))
        self.dump.write_partitions(
            "t", (PartitionLine.of(name_of(table, partition), partition) for partition in partitions)
        )
        self.dump.write_files("t", self.listed(partitions)[1])
        self.dump.finish_dump(manifest())

    def files(self) -> dict[str, Path]:
        inner = "delta_0000001_0000001_0000/000000_0" if self.kind == "acid" else "000000_0"
        if not self.partitioned:
            return {"": self.root / inner}
        return {value: place / inner for value, place in self.places.items()}

    def wire(self) -> Any:
        return types.Table(
            dbName="db",
            tableName="t",
            sd=types.StorageDescriptor(cols=[], location=f"file:{self.root}", numBuckets=-1),
            partitionKeys=[types.FieldSchema(name="p", type="string")] if self.partitioned else [],
            parameters=self.parameters,
            tableType="EXTERNAL_TABLE" if self.kind == "external" else "MANAGED_TABLE",
        )

    def partitions(self, values: Collection[str]) -> list[Any]:
        if not self.partitioned:
            return []
        return [
            types.Partition(
                values=[value],
                sd=types.StorageDescriptor(location=f"file:{self.places[value]}"),
                parameters={},
            )
            for value in values
        ]

    def listed(self, partitions: list[Any]) -> tuple[TableLocations, list[Any], Sightings]:
        from airflow_hive_federation.model.write_ids import ValidWriteIds

        table = self.wire()
        places = TableLocations(table, partitions)
        sightings = Sightings(places)
        write_ids = ValidWriteIds(table="db.t", high_watermark=1) if self.kind == "acid" else None
        txns = ValidTxns(high_watermark=1)
        return places, list(visible_files(table, places, write_ids, txns, sightings=sightings)), sightings

    def losses(self, noted: Evidence, values: Collection[str] = "123", *, new: bool = False) -> Losses:
        places, _, sightings = self.listed(self.partitions(values))
        home = None if new else DumpDirectory(self.dump.uri)
        return losses_of(
            "t",
            places,
            bare=sightings.bare(),
            home=home,
            before=partitions_before(home, "t"),
            evidence=noted,
            kind=table_kind(self.wire()),
        )

    def empty(self) -> None:
        for place in self.root.rglob("*"):
            if place.is_file():
                place.unlink()

    def unmount(self) -> None:
        self.root.parent.rename(self.root.parent.with_name("aside"))
        self.root.parent.mkdir()


KINDS = pytest.mark.parametrize("kind", ["external", "managed", "acid"])
NOTHING = Losses(of_partitions=3)


@KINDS
def test_a_source_that_is_there_loses_nothing(tmp_path: Path, kind: str) -> None:
    source = Source(tmp_path, kind)
    assert source.losses(evidence()) == NOTHING
    # A file, and a partition's directory: they are missing in a directory that is known to exist.
    source.files()["2"].unlink()
    assert source.losses(evidence()) == NOTHING
    source.places["2"].rename(tmp_path / "aside")
    assert source.losses(evidence()) == NOTHING


@KINDS
@pytest.mark.parametrize("values", ["", "1", "23"])
def test_partitions_that_are_not_listed(tmp_path: Path, kind: str, values: str) -> None:
    source = Source(tmp_path, kind)
    hidden = [f"p={value}" for value in "123" if value not in values]
    assert list(source.losses(evidence(), values).partitions) == hidden
    dropped = event(ev.PartitionsChanged, table="t", gone=tuple(hidden))
    assert list(source.losses(evidence(dropped), values).partitions) == []
    other = event(ev.PartitionsChanged, table="other", gone=tuple(hidden))
    assert list(source.losses(evidence(other), values).partitions) == hidden
    again = event(ev.TableDropped, table="t")
    assert not source.losses(evidence(again), values)


@KINDS
@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("missing", [False, True])
def test_a_directory_in_which_nothing_is_found(
    tmp_path: Path, kind: str, partitioned: bool, missing: bool
) -> None:
    source = Source(tmp_path, kind, partitioned=partitioned)
    source.unmount()
    if not missing:
        source.root.mkdir()
    files = 2 if partitioned else 1
    of = 3 if partitioned else 1
    lost = LostFiles(location=f"file:{source.root}", missing=missing, files=files, of=of)
    losses = source.losses(evidence())
    assert list(losses.files) == [lost]
    assert losses.percent == (67 if partitioned else 100)
    with pytest.raises(UnexplainedRemovalError, match="not there" if missing else "empty") as error:
        refuse_unexplained(POLICY, Unexplained(losses={"t": losses}))
    assert error.value.directories == {"t": [f"file:{source.root}"]}
    assert f"max_unexplained_percent = {losses.percent}" in error.value.remedy
    refuse_unexplained(
        replace(POLICY, max_unexplained_percent=losses.percent), Unexplained(losses={"t": losses})
    )
    with pytest.raises(UnexplainedRemovalError):
        refuse_unexplained(
            replace(POLICY, max_unexplained_percent=losses.percent - 1), Unexplained(losses={"t": losses})
        )


@pytest.mark.parametrize("kind", ["external", "managed"])
@pytest.mark.parametrize(
    ("event", "explains"),
    [
        (event(ev.TableAltered, table="t", old_table="t", old_database="db", truncated=True), True),
        (event(ev.Inserted, table="t", overwritten=True), True),
        (event(ev.PartitionsChanged, table="t", truncated=("p=1", "p=2")), True),
        (event(ev.PartitionsChanged, table="t", gone=("p=1", "p=2")), True),
        (event(ev.PartitionsChanged, table="t", truncated=("p=1",)), False),
        (event(ev.TableAltered, table="t", old_table="t", old_database="db"), False),
        (event(ev.Inserted, table="t"), False),
        (event(ev.Inserted, table="other", overwritten=True), False),
    ],
)
def test_events_of_removed_rows(tmp_path: Path, kind: str, event: ev.Event, explains: bool) -> None:
    source = Source(tmp_path, kind)
    source.empty()
    assert bool(source.losses(evidence(event)).files) is not explains


@KINDS
def test_a_partition_elsewhere(tmp_path: Path, kind: str) -> None:
    source = Source(tmp_path, kind)
    elsewhere = source.places["3"]
    elsewhere.rename(tmp_path / "aside")
    (lost,) = source.losses(evidence()).files
    assert (lost.location, lost.missing, lost.files, lost.of) == (f"file:{elsewhere}", True, 1, 3)
    # Of a table that is copied for the first time, it has to be there, as Hive's replication demands.
    # External tables are copied by their roots: of those it may be missing, but not from an empty store.
    missing = [] if kind == "external" else [f"file:{elsewhere}"]
    assert list(source.losses(evidence(), new=True).missing) == missing
    (elsewhere.parent / "other").unlink()
    assert list(source.losses(evidence(), new=True).missing) == [f"file:{elsewhere}"]


@KINDS
def test_a_new_partition_inside_needs_its_directory(tmp_path: Path, kind: str) -> None:
    source = Source(tmp_path, kind)
    inside = source.places["1"]
    inside.rename(tmp_path / "aside")
    missing = [] if kind == "external" else [f"file:{inside}"]
    assert list(source.losses(evidence(), new=True).missing) == missing
    # Of a partition that was replicated, Hive reads the directory that is gone as empty.
    assert not source.losses(evidence()).missing


@KINDS
def test_a_new_table_needs_its_directory(tmp_path: Path, kind: str) -> None:
    source = Source(tmp_path, kind)
    source.empty()
    assert not source.losses(evidence(), new=True)
    source.unmount()
    lost = source.losses(evidence(), new=True)
    assert list(lost.missing) == [f"file:{source.root}"]
    with pytest.raises(SourceDirectoryMissingError) as error:
        refuse_unexplained(replace(POLICY, max_unexplained_percent=100), Unexplained(losses={"t": lost}))
    assert error.value.directories == {"t": [f"file:{source.root}"]}


def test_a_table_that_moved_to_an_empty_place(tmp_path: Path) -> None:
    source = Source(tmp_path, "external", partitioned=False)
    source.root = tmp_path / "new"
    source.root.mkdir()
    assert source.losses(evidence()) == Losses()
    source.root.rmdir()
    assert list(source.losses(evidence()).missing) == [f"file:{source.root}"]


def test_a_base_without_rows_is_something(tmp_path: Path) -> None:
    source = Source(tmp_path, "acid", partitioned=False)
    source.files()[""].unlink()
    source.files()[""].parent.rename(source.root / "base_0000001")
    assert source.losses(evidence()) == Losses()


class Client:
    """Answers with events that came later."""

    def __init__(self, *names: str) -> None:
        self.asked: list[int] = []
        self._events = [
            types.NotificationEvent(
                eventId=9, eventTime=0, eventType="DROP_TABLE", dbName="db", tableName=name, message=""
            )
            for name in names
        ]

    def iter_notification_events(self, after: int, *, up_to: int | None) -> list[Any]:
        assert up_to is None
        self.asked.append(after)
        return self._events


def test_what_was_dropped_after_the_last_event() -> None:
    client: Any = Client("a", "t")
    pool: Any = None
    source = ReplicatedSource(pool, POLICY)
    gone = Losses(partitions=("p=1",), of_partitions=1)
    source.settle(client, Unexplained(tables={"a"}, losses={"t": gone}), 7)
    assert client.asked == [7]
    with pytest.raises(UnexplainedRemovalError) as error:
        source.settle(client, Unexplained(tables={"a", "b"}, losses={"u": gone}), 7)
    assert (error.value.tables, error.value.partitions) == (["b"], {"u": ["p=1"]})
    # No call is made where nothing is missing.
    source.settle(client, Unexplained(losses={"t": Losses(of_partitions=3)}), 7)
    assert client.asked == [7, 7]


@given(lost=st.integers(1, 1000), more=st.integers(0, 1000), bound=st.integers(0, 100))
def test_the_bound_of_a_policy(lost: int, more: int, bound: int) -> None:
    losses = Losses(partitions=[str(number) for number in range(lost)], of_partitions=lost + more)
    check: Callable[[], None] = lambda: refuse_unexplained(  # noqa: E731
        replace(POLICY, max_unexplained_percent=bound), Unexplained(losses={"t": losses})
    )
    if 100 * lost <= bound * (lost + more):
        check()
    else:
        with pytest.raises(UnexplainedRemovalError):
            check()


@pytest.mark.parametrize(
    ("path", "published"),
    [
        ("000000_0", True),
        ("p=1/_SUCCESS", True),
        ("_delta_log/0.json", True),
        (".hoodie/x", True),
        (".hive-staging_hive_2026-01-01_00-00-00_000_1-1/-ext-10000/000000_0", False),
        ("p=1/.hive-staging_x/000000_0", False),
        ("_tmp.-ext-10000/000000_0", False),
        ("_task_tmp.-ext-10000/_tmp.000000_0", False),
        ("_temporary/0/_temporary/x", False),
        (".spark-staging-1/p=1/x", False),
        ("_tmp=1/000000_0", True),
        ("a_tmp/000000_0", True),
    ],
)
def test_files_that_a_writer_has_not_finished(path: str, published: bool) -> None:
    assert is_published(path) is published


def test_directories_of_a_bootstrap(tmp_path: Path) -> None:
    source = Source(tmp_path, "external")
    source.unmount()
    _, files, sightings = source.listed(source.partitions("123"))
    assert [file.path for file in files] == ["000000_0"]
    assert new_directories_missing(sightings.bare(), TableKind.EXTERNAL) == [f"file:{source.root}"]
