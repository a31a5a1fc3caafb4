"""Scripts routed by the facts of a metastore, and by files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from airflow_hive_federation.clusters.catalog import MetastoreFacts
from airflow_hive_federation.clusters.metadata import (
    ClusterMetadata,
    Secondary,
    source_mark,
    write_metadata,
)
from airflow_hive_federation.clusters.notes import notes_of
from airflow_hive_federation.clusters.placement import Session
from airflow_hive_federation.clusters.registry import ClusterRegistry, read_registry
from airflow_hive_federation.clusters.running import LiveRouter, first_session, statements_of
from airflow_hive_federation.errors import (
    ConfigurationError,
    NoSuchObjectError,
    RoutingError,
    UnanalysableError,
    UnknownClusterError,
)
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.storage.listing import list_files
from tests.support.two_clusters import two_clusters

REGISTRY = two_clusters("/one", "/two")


class Tables:
    """The answers of a metastore with these tables; it counts its calls."""

    def __init__(self, *tables: types.Table) -> None:
        self.tables = {str(table.tableName): table for table in tables}
        self.partitions: list[types.Partition] = []
        self.asked = 0

    def call(self, method: str, *arguments: str) -> str:
        assert method == "get_config_value"
        return ""  # It keeps no events.

    def get_tables(self, database: str, names: Sequence[str]) -> list[types.Table]:
        self.asked += 1
        if database == "absent":
            raise NoSuchObjectError("Could not find database hive.absent")
        return [self.tables[name] for name in names if name in self.tables]

    def iter_partitions(self, database: str, name: str) -> Iterator[types.Partition]:
        yield from self.partitions if name == "parted" else ()


def table(name: str, location: str, primary: str, copy: Path | None = None) -> types.Table:
    described = types.Table(
        dbName="default",
        tableName=name,
        tableType="EXTERNAL_TABLE",
        sd=types.StorageDescriptor(location=location),
        parameters={"transient_lastDdlTime": "1"},
    )
    secondaries = {}
    if copy is not None:
        mark = source_mark(described, list_files(location))
        secondaries["C2"] = Secondary(location=str(copy), source=mark)
    metadata = ClusterMetadata(primary=primary, secondaries=secondaries)
    described.parameters = write_metadata(described.parameters, metadata)
    return described


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """A primary and its copy, with one file each."""
    for name in ("primary", "copy"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_text("1")
    return tmp_path / "primary", tmp_path / "copy"


@pytest.fixture
def tables(places: tuple[Path, Path]) -> Tables:
    primary, copy = places
    return Tables(table("t1", str(primary), "C1", copy), table("t2", "/nowhere", "C2"))


def router(tables: Tables, *, registry: ClusterRegistry = REGISTRY, **settings: Any) -> LiveRouter:
    return LiveRouter(client=cast("MetastoreClient", tables), registry=registry, **settings)


JOIN = "SELECT * FROM t1 JOIN t2 ON t1.a = t2.a"


def test_a_copy_is_used_while_files_are_those_that_were_copied(
    tables: Tables, places: tuple[Path, Path]
) -> None:
    assert router(tables).route(JOIN, Session()).cluster == "C2"
    for place in places:
        (place / "more").write_text("2")
        with pytest.raises(RoutingError, match=r"t1 is stale there"):
            router(tables).route(JOIN, Session())
        assert router(tables, check_files=False).route(JOIN, Session()).cluster == "C2"
        (place / "more").unlink()
    assert router(tables).route(JOIN, Session()).cluster == "C2"


def test_each_statement_sees_the_present_tables_and_files(tables: Tables, places: tuple[Path, Path]) -> None:
    kept = router(tables)
    assert kept.route(JOIN, Session()).cluster == "C2"
    (places[1] / "more").write_text("2")
    with pytest.raises(RoutingError, match=r"t1 is stale there"):
        kept.route(JOIN, Session())
    (places[1] / "more").unlink()
    assert kept.route(JOIN, Session()).cluster == "C2"
    del tables.tables["t1"]
    with pytest.raises(RoutingError):
        kept.route(JOIN, Session())


def test_only_tables_whose_copies_are_read_are_compared(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []

    def recorded(self: MetastoreFacts, database: str, name: str, cluster: str, **_: Any) -> list[str]:
        asked.append((name, cluster))
        return []

    monkeypatch.setattr(MetastoreFacts, "check_files", recorded)
    assert router(tables).route(JOIN, Session()).cluster == "C2"
    assert asked == [("t1", "C2")]
    # A statement that no cluster can run reads no copy.
    tables.tables["t9"] = table("t9", "/nowhere", "C1")
    assert router(tables).decide("SELECT * FROM t1 JOIN t2 JOIN t9", Session()).cluster is None
    assert asked == [("t1", "C2")]


def test_a_stale_copy_that_is_not_read_does_not_hinder(
    tables: Tables, places: tuple[Path, Path], tmp_path: Path
) -> None:
    """Of more than a hundred partitions, all copies are compared, and only once."""
    primary, copy = places
    parted = tables.tables["parted"] = table("parted", str(tmp_path / "parted"), "C1")
    parted.partitionKeys = [types.FieldSchema(name="ds", type="string")]
    for number in range(120):
        storage = types.StorageDescriptor(location=str(primary))
        partition = types.Partition(values=[str(number)], sd=storage, parameters={})
        place = copy if number else tmp_path / "gone"
        secondary = Secondary(location=str(place), source=source_mark(partition, list_files(str(primary))))
        partition.parameters = write_metadata({}, ClusterMetadata(secondaries={"C2": secondary}))
        tables.partitions.append(partition)
    join = "SELECT * FROM parted JOIN t2 ON parted.a = t2.a"
    assert router(tables).route(f"{join} WHERE ds <> '0'", Session()).cluster == "C2"
    with pytest.raises(RoutingError, match="ds=0 is stale there"):
        router(tables).route(join, Session())


def test_only_the_files_of_partitions_that_are_read_are_compared(
    tables: Tables, places: tuple[Path, Path], tmp_path: Path
) -> None:
    primary, copy = places
    parted = tables.tables["parted"] = table("parted", str(tmp_path / "parted"), "C1")
    parted.partitionKeys = [types.FieldSchema(name="ds", type="string")]
    for ds in ("1", "2"):
        partition = types.Partition(
            values=[ds], sd=types.StorageDescriptor(location=str(primary)), parameters={}
        )
        secondary = Secondary(location=str(copy), source=source_mark(partition, list_files(str(primary))))
        partition.parameters = write_metadata({}, ClusterMetadata(secondaries={"C2": secondary}))
        tables.partitions.append(partition)
    join = "SELECT * FROM parted JOIN t2 ON parted.a = t2.a"
    assert router(tables).route(join, Session()).cluster == "C2"
    # The copy of the second partition has other files, and cannot even be listed.
    tables.partitions[1].parameters = {
        key: "nowhere://copy" if key.endswith(".location") else value
        for key, value in (tables.partitions[1].parameters or {}).items()
    }
    assert router(tables).route(f"{join} WHERE ds = '1'", Session()).cluster == "C2"
    for sql in (join, f"{join} WHERE ds = '2'"):
        with pytest.raises(ConfigurationError, match="nowhere"):
            router(tables).route(sql, Session())


def test_all_tables_of_a_statement_are_asked_for_at_once(tables: Tables) -> None:
    tables.tables["v"] = types.Table(
        dbName="default",
        tableName="v",
        tableType="VIRTUAL_VIEW",
        viewExpandedText="SELECT t1.a FROM default.t1 JOIN default.t2 ON t1.a = t2.a",
    )
    for sql, calls in ((JOIN, 1), (f"INSERT INTO made {JOIN}", 1), ("SELECT * FROM v", 2)):
        tables.asked = 0
        assert router(tables, check_files=False).route(sql, Session()).cluster == "C2"
        assert tables.asked == calls, sql


def test_use_cluster_counts_for_what_follows(tables: Tables) -> None:
    script = "use cluster c2; select * from t1; use cluster; select * from t1; select ';' from t2"
    clusters = [decision.cluster for _, decision in router(tables).decisions(script, Session())]
    assert clusters[1::2] == ["C2", "C1"]
    assert clusters[4] == "C2"
    routed = list(router(tables).script(script, Session()))
    assert [statement.runs for statement in routed] == [False, True, False, True, True]
    assert routed[4].text == "select ';' from t2"


def test_clusters_that_are_not_configured_are_refused(tables: Tables) -> None:
    for script in ("use cluster c9", "use cluster c2; use cluster c9"):
        with pytest.raises(UnknownClusterError):
            list(router(tables).script(script, Session()))
    with pytest.raises(UnknownClusterError):
        first_session(REGISTRY, database="D", cluster="c9")
    with pytest.raises(UnknownClusterError, match="No cluster is configured"):
        router(tables, registry=ClusterRegistry()).route(JOIN, Session())
    assert first_session(REGISTRY, database="D", cluster="c2") == Session(database="d", cluster="C2")
    assert first_session(REGISTRY, database="D", cluster=None) == Session(database="d")


def test_a_table_of_a_database_that_does_not_exist_is_refused_by_name(tables: Tables) -> None:
    with pytest.raises(RoutingError, match=r"absent\.t: the metastore has no such table"):
        router(tables).route("select * from absent.t, t1", Session())


def test_temporary_tables_are_refused(tables: Tables) -> None:
    with pytest.raises(RoutingError, match="Temporary tables"):
        list(router(tables).script("create temporary table x as select * from t1", Session()))


def test_a_script_that_cannot_be_divided_is_refused() -> None:
    with pytest.raises(UnanalysableError):
        statements_of("select 'no end")
    # A template may have been rendered as such a text.
    for script in ("", " ; -- nothing\n"):
        with pytest.raises(UnanalysableError, match="has no statement"):
            statements_of(script)


@pytest.fixture
def roots(tmp_path: Path) -> ClusterRegistry:
    return read_registry(
        {
            "hive.cluster.properties": {
                "C1": {"fileSystem": str(tmp_path / "r"), "jobTracker": "one"},
                "C2": {"fileSystem": str(tmp_path / "s"), "jobTracker": "two"},
            },
            "hive.default.cluster.name": "C1",
        },
        origin="the test",
    )


def test_a_statement_is_written_for_its_job_and_removed(tables: Tables, roots: ClusterRegistry) -> None:
    (routed,) = router(tables, registry=roots).script("select * from t1", Session())
    with routed.written(roots.cluster("C1")) as uri:
        path = Path(uri.removeprefix("file:"))
        assert json.loads(path.read_text()) == {"database": "default", "sql": "select * from t1", "acid": []}
        assert path.stat().st_mode & 0o077 == 0
    assert not path.parent.exists()
    assert not list(notes_of(roots.cluster("C1")))


def test_a_statement_that_has_run_does_not_fail_because_its_file_stays(
    tables: Tables, roots: ClusterRegistry, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (routed,) = router(tables, registry=roots).script("insert into t1 select 1", Session())
    with routed.written(roots.cluster("C1")) as uri:
        shutil.rmtree(Path(uri.removeprefix("file:")).parent)
    assert not caplog.records
    assert not list(notes_of(roots.cluster("C1")))
    with routed.written(roots.cluster("C1")):
        (note,) = (tmp_path / "r" / "_hive_federation" / "notes").iterdir()
        note.unlink()
        note.mkdir()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "cluster sweep" in caplog.text
    assert "insert" not in caplog.text


def test_a_routed_statement_names_its_route(tables: Tables) -> None:
    (routed,) = router(tables).script(JOIN, Session())
    assert routed.cluster == "C2"
    assert sorted(routed.reads) == ["default.t1", "default.t2"]
    sql = "SELECT * FROM t1 JOIN default.t2 ON t1.a = t2.a"
    (of_two,) = router(tables, check_files=False).script(sql, Session(database="other"))
    assert sorted(of_two.reads) == ["default.t2", "other.t1"]
    assert "C2 is the primary cluster of" in routed.explained()
    assert (routed.to_json()["sql"], routed.to_json()["cluster"]) == (JOIN, "C2")


def test_a_refusal_ends_the_decisions_of_a_script(tables: Tables) -> None:
    script = "use cluster C1; select * from t2; select * from t1"
    decisions = list(router(tables).decisions(script, Session()))
    assert [(text, decision.cluster) for text, decision in decisions] == [
        ("use cluster C1", "C1"),
        ("select * from t2", None),
    ]


def test_a_refusal_names_its_statement_in_a_script(tables: Tables) -> None:
    script = "\nselect * from t1;\n\nselect * from t2; use cluster C1; -- then\nselect * from t2"
    with pytest.raises(RoutingError, match=r"^Statement 4 of 4, from line 4: The cluster of the") as caught:
        list(router(tables).script(script, Session()))
    assert (caught.value.statement, caught.value.decision.cluster) == (4, None)
    assert caught.value.remedy.startswith("USE CLUSTER without a name")
    with pytest.raises(
        UnknownClusterError, match=r"^Statement 2 of 2, from line 1: There is no cluster 'c9'"
    ):
        list(router(tables).script("select 1; use cluster c9", Session()))
    with pytest.raises(UnknownClusterError, match=r"^Statement 2 of 2, from line 1: There is no cluster"):
        list(router(tables).decisions("select 1; use cluster c9", Session()))
    with pytest.raises(RoutingError, match=r"^Statement 1 of 2, from line 2: Temporary tables"):
        list(router(tables).script("\ncreate temporary table x as select 1; select 2", Session()))
    # The only statement of a script needs no name.
    with pytest.raises(RoutingError, match=r"^No cluster can run"):
        list(router(tables).script("insert into t1 select * from t2;", Session()))


@pytest.mark.parametrize(
    ("script", "position"),
    [
        ("\n  select *\n from t1 where a = ${x};", (3, 20)),
        ("select 1;  select * from t1 where x = ${y}", (1, 39)),
    ],
)
def test_what_cannot_be_analysed_has_its_position_in_the_script(
    tables: Tables, script: str, position: tuple[int, int]
) -> None:
    line, column = position
    clause = f"line {line}, column {column}: "
    with pytest.raises(UnanalysableError, match=clause) as caught:
        list(router(tables).script(script, Session()))
    assert (caught.value.line, caught.value.column) == position
    *_, (_, decision) = router(tables).decisions(script, Session())
    assert decision.unanalysable is not None
    assert (decision.unanalysable.line, decision.unanalysable.column) == position
    assert clause in decision.reason


def test_all_copies_are_compared_if_a_decision_does_not_name_each_partition(
    tables: Tables, places: tuple[Path, Path], tmp_path: Path
) -> None:
    primary, copy = places
    parted = tables.tables["parted"] = table("parted", str(tmp_path / "parted"), "C1")
    parted.partitionKeys = [types.FieldSchema(name="ds", type="string")]
    for number in range(103):
        partition = types.Partition(
            values=[f"{number:03}"], sd=types.StorageDescriptor(location=str(primary)), parameters={}
        )
        place = "nowhere://copy" if number == 0 else str(copy)
        secondary = Secondary(location=place, source=source_mark(partition, list_files(str(primary))))
        partition.parameters = write_metadata({}, ClusterMetadata(secondaries={"C2": secondary}))
        tables.partitions.append(partition)
    join = "SELECT * FROM parted JOIN t2 ON parted.a = t2.a WHERE ds > '{}'"
    assert router(tables).route(join.format("050"), Session()).cluster == "C2"
    with pytest.raises(ConfigurationError, match="nowhere"):
        router(tables).route(join.format("000"), Session())
