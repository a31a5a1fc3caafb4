"""Tasks publish documents about clusters; nothing here needs a metastore."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from airflow_hive_federation.clusters.look import CopyLook, TableLook
from airflow_hive_federation.published.clusters import (
    CLUSTERS,
    PLACED,
    ROUTED,
    ROUTES,
    ClusterPublisher,
    DatabaseTables,
    PlacedTable,
    PublishedRoute,
    read_database_tables,
)
from airflow_hive_federation.published.directory import StateDirectory, Subject, _ParsedDocuments, key_of
from airflow_hive_federation.published.documents import Publisher, versioned

TASK = Publisher(dag_id="d", run_id="r", task_id="t")


@pytest.fixture
def place(tmp_path: Path) -> StateDirectory:
    return StateDirectory(f"file:{tmp_path / 'state'}")


@pytest.fixture
def publisher(place: StateDirectory) -> ClusterPublisher:
    return ClusterPublisher(place, metastore="hive", by=TASK)


def tables(place: StateDirectory, database: str = "d") -> dict[str, PlacedTable]:
    found = place.read(CLUSTERS, key_of(database, "hive"), PLACED)
    assert found is not None
    return {table.name: table for table in found.tables}


def look(table: str, stale: int = 0) -> TableLook:
    copy = CopyLook(cluster="C2", objects=3, stale=stale, stale_bytes=5, lacks_since_s=7)
    return TableLook(table=table, primary="C1", assigned=True, partitions=4, copies=(copy,))


def test_a_look_replaces_its_tables_and_no_others(place: StateDirectory, publisher: ClusterPublisher) -> None:
    publisher.looked([look("d.a"), look("d.b"), look("e.a")])
    publisher.looked([look("d.b", stale=2)])
    assert list(tables(place)) == ["d.a", "d.b"]
    assert [table.copies[0].stale for table in tables(place).values()] == [0, 2]
    assert (tables(place)["d.b"].partitions, tables(place)["d.b"].by) == (4, TASK)
    assert list(tables(place, "e")) == ["e.a"]


def test_a_look_at_all_tables_forgets_those_that_are_gone(
    place: StateDirectory, publisher: ClusterPublisher
) -> None:
    publisher.looked([look("d.a"), look("d.b")])
    publisher.failure("d.b", "StorageError: no", "Do.")
    publisher.looked_at_all("D", [look("d.b"), look("d.c")])
    assert list(tables(place)) == ["d.b", "d.c"]
    # A look is no success of the task that has failed.
    assert tables(place)["d.b"].failures == 1


def test_failures_are_counted_until_a_task_succeeds(
    place: StateDirectory, publisher: ClusterPublisher
) -> None:
    publisher.looked([look("d.a")])
    for _ in range(2):
        publisher.failure("d.a", "StorageError: no", "Do.")
    failed = tables(place)["d.a"]
    assert (failed.failures, failed.error, failed.remedy) == (2, "StorageError: no", "Do.")
    assert failed.copies[0].objects == 3
    publisher.looked([look("d.a")], succeeded=True)
    assert (tables(place)["d.a"].failures, tables(place)["d.a"].error) == (0, "")
    publisher.failure("d.a", "StorageError: no", "Do.")
    publisher.succeeded("d.a")
    publisher.succeeded("d.unknown")
    assert (tables(place)["d.a"].failures, list(tables(place))) == (0, ["d.a"])


def test_an_assignment_keeps_what_is_known_of_copies(
    place: StateDirectory, publisher: ClusterPublisher
) -> None:
    publisher.looked([look("d.a")])
    publisher.assigned({"d.A": "C2", "d.new": "C2"})
    assert [(table.primary, table.assigned, len(table.copies)) for table in tables(place).values()] == [
        ("C2", True, 1),
        ("C2", True, 0),
    ]
    publisher.assigned({"d.new": "C1"}, unassigned=["d.new"])
    assert (tables(place)["d.new"].primary, tables(place)["d.new"].assigned) == ("C1", False)


def test_the_last_routes_have_bounds(place: StateDirectory, publisher: ClusterPublisher) -> None:
    long = PublishedRoute(
        at_s=1.0,
        rule="none",
        refused="x" * 9_000,
        tables=tuple(f"d.t{number}" for number in range(90)),
        lines=("y" * 9_000,) * 90,
    )
    publisher.routed([long] * 60)
    publisher.routed([])
    publisher.routed([PublishedRoute(at_s=2.0, cluster="C1", rule="input", tables=("d.t",))] * 60)
    found = place.read(ROUTES, key_of("hive"), ROUTED)
    assert found is not None
    assert [route.cluster for route in found.routes] == [""] * 40 + ["C1"] * 60
    first = found.routes[0]
    assert (len(first.refused), len(first.tables), len(first.lines), len(first.lines[0])) == (
        500,
        20,
        20,
        500,
    )
    assert first.by == TASK


@pytest.fixture
def hasty() -> Iterator[None]:
    """Let threads take turns all the time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty")
def test_parsed_documents_are_kept_up_to_a_size_and_from_all_threads() -> None:
    """A page reads a hundred documents with several threads, while others do so."""
    parses: list[str] = []

    def read(value: object) -> DatabaseTables:
        document = read_database_tables(value)
        parses.append(document.database)
        return document

    subject = Subject("tables", read)
    kept = _ParsedDocuments(20_000)
    contents = [
        json.dumps(versioned(DatabaseTables(metastore="m" * 500, database=f"d{number}", published_s=1.0)))
        for number in range(100)
    ]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(60):
            found = pool.map(
                lambda number: kept.parsed(f"u{number}", subject, contents[number].encode()), range(100)
            )
            assert [document.database for document in found] == [f"d{number}" for number in range(100)]
    parses.clear()
    kept.parsed("last", subject, contents[0].encode())
    kept.parsed("last", subject, contents[0].encode())
    assert parses == ["d0"]
    kept.parsed("last", subject, contents[1].encode())
    assert parses == ["d0", "d1"]
