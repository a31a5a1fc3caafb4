"""Tables of one source directory, and those that would share one of the target only."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.errors import HiddenLocationError, LocationConflictError
from airflow_hive_federation.replication.cycle_plan import plan_cycle
from tests.support.incrementing import Cycles, cycles

DATABASE = "shared_places"


@pytest.fixture
def site(
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    hive_sql_source: HiveSql,
    hive_sql_target: HiveSql,
    tmp_path: Path,
) -> Iterator[Cycles]:
    hive_sql_source.execute(f"CREATE DATABASE {DATABASE}")
    with cycles(
        source,
        target,
        (hive_sql_source, hive_sql_target),
        tmp_path,
        source_database=DATABASE,
        external_base=f"file:{tmp_path}/base",
        external_prefix=f"file:{tmp_path}/lake",
    ) as made:
        yield made


def external(name: str, directory: Path, *parameters: str) -> str:
    properties = ", ".join(parameters) or "'made.by'='test'"
    return (
        f"CREATE EXTERNAL TABLE {DATABASE}.{name} (s string) STORED AS TEXTFILE LOCATION 'file:{directory}' "
        f"TBLPROPERTIES ({properties})"
    )


def test_a_table_at_the_same_path_outside_the_prefix(site: Cycles, tmp_path: Path) -> None:
    """The second table comes by an increment that the first one is not concerned with."""
    inside, shadow = Path(f"{tmp_path}/lake{tmp_path}/events"), tmp_path / "events"
    site.write(
        external("a", inside, "'external.table.purge'='true'"),
        f"INSERT INTO {DATABASE}.a VALUES ('a')",
        external("twin", inside),
        external("hidden_source", tmp_path / "lake" / ".parts" / "t"),
        f"INSERT INTO {DATABASE}.hidden_source VALUES ('h')",
    )
    # Copies of closed files, and their directory, are as closed.
    (written,) = (path for path in inside.iterdir() if not path.name.startswith("."))
    written.chmod(0o600)
    inside.chmod(0o700)
    hidden = replace(site.policy, external_base=f"file:{tmp_path}/.base")
    with pytest.raises(HiddenLocationError, match="external_base"):
        plan_cycle(site.source, site.target, hidden)
    site.bootstrap()
    queries = tuple(f"SELECT * FROM {{db}}.{name}" for name in ("a", "twin", "hidden_source"))
    site.assert_equal(*queries)
    copied = Path(f"{tmp_path}/base{tmp_path}/events")
    assert [stat.S_IMODE(path.stat().st_mode) for path in (copied, copied / written.name)] == [0o700, 0o600]
    # Renamed, and altered to lose its files with its drop: on the target, they are its own by then.
    site.write(f"ALTER TABLE {DATABASE}.a RENAME TO {DATABASE}.b")
    site.cycle()
    queries = (queries[1], queries[2], "SELECT * FROM {db}.b")
    site.assert_equal(*queries)
    assert site.rows(queries[2])[1] == [("a",)]

    site.write(external("c", shadow))
    refused = rf"table b \(source: file:{inside}\) and table c \(source: file:{shadow}\)"
    for attempt in (lambda: plan_cycle(site.source, site.target, site.policy), site.dump):
        with pytest.raises(LocationConflictError, match=refused):
            attempt()
    assert [rows for _, rows in map(site.rows, queries)] == [[("a",)], [("h",)], [("a",)]]
    # The next run goes on.
    site.write(f"DROP TABLE {DATABASE}.c", f"INSERT INTO {DATABASE}.b VALUES ('after')")
    site.cycle()
    site.assert_equal(*queries)
    # One of two tables of a directory is dropped: the other keeps its rows.
    site.write(f"ALTER TABLE {DATABASE}.b SET TBLPROPERTIES ('external.table.purge'='false')")
    site.cycle()
    site.write(f"DROP TABLE {DATABASE}.b")
    site.cycle()
    site.assert_equal(queries[0])
    assert len(site.rows(queries[0])[1]) == 2
