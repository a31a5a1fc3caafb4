"""Hive and Spark try to write through links, statement by statement.

The page ``docs/remotes-writing.md`` is what is expected: its table has a row for each statement, and a cell
for each engine and group of tables.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql, HiveSqlError
from airflow_hive_federation.errors import NoSuchObjectError
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.remotes.session import Remotes
from airflow_hive_federation.runtime.java import spark_java_home
from tests.support.line_servers import line_server
from tests.support.link_statements import (
    ACID,
    FAR,
    GROUPS,
    HIVE,
    PLAIN,
    SPARK,
    Attempt,
    Remote,
    contents,
    definitions,
    local_table,
)
from tests.support.small_source import connected

PAGE = Path(__file__).parents[3] / "docs" / "remotes-writing.md"
HOOK = "org.apache.hadoop.hive.ql.hooks.EnforceReadOnlyDatabaseHook"
BY_STORE = "org.apache.hadoop.hive.ql.security.authorization.StorageBasedAuthorizationProvider"
#: Formats make no difference to Hive; Spark has writers of its own for Parquet and, alike, for ORC.
HIVES_KINDS = ("orc", "text_p", "acid_p")
SPARKS_KINDS = ("text", "parquet", "sparks", "text_p", "parquet_p", "acid_p")
#: Statements in which no writer of a file format takes part, so that Parquet's makes no difference to them.
UNWRITTEN = (
    *("ALTER TABLE", "ANALYZE TABLE", "DROP ", "EXPORT", "MSCK REPAIR", "SET 'EXTERNAL'", "SET 'external."),
    *("UPDATE", "DELETE", "MERGE", "LOAD DATA", "TRUNCATE"),
)
#: Spark then writes by the link's output format, of which there is none.
NO_WRITERS = (
    "SET spark.sql.hive.convertInsertingUnpartitionedTable=false",
    "SET spark.sql.hive.convertInsertingPartitionedTable=false",
)
REFUSED, LINK_ONLY, REMOTE = "refused", "link only", "**remote**"
#: Runs statements up to the first that fails, and returns its message, or nothing.
Engine = Callable[[Sequence[str], str], str]


@pytest.fixture(scope="module")
def remote(source: EmbeddedMetastore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    with connected(source) as client:
        yield Remote(client, tmp_path_factory.mktemp("remote"))


@dataclass(frozen=True, kw_only=True)
class Link:
    """A link in a local database of its own, which no statement has changed.

    :param place: a directory for files.
    :param state: the definitions of the database, and its files.
    """

    database: str
    place: Path
    state: object


class Trial:
    """Tries statements on links of one local metastore; each statement on one that is as it was made."""

    def __init__(self, uri: str, remote: Remote, engine: Engine, place: Path, far: str) -> None:
        self._settings = MetastoreSettings(uris=(uri,))
        self._remote, self._engine, self._place, self._far = remote, engine, place, far
        self._numbers = itertools.count()
        #: Links that statements were refused on, by kind, and whether the link is one of a remote database.
        self._unchanged: dict[tuple[str, bool], Link] = {}
        #: The engines' errors, shown when a test fails.
        self.lines: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with MetastoreClient(self._settings) as near:
            for link in self._unchanged.values():
                near.drop_database(link.database, delete_data=False, cascade=True)

    def outcome(
        self, attempt: Attempt, kind: str, *, whole_database: bool = False, before: Sequence[str] = ()
    ) -> str:
        """Try a statement on a link.

        :param whole_database: the link is one of a remote database.
        :param before: what the engine runs first.
        """
        with MetastoreClient(self._settings) as near:
            link = self._unchanged.pop((kind, whole_database), None) or self._made(near, kind, whole_database)
            names = {"t": f"{link.database}.{kind}", "o": f"{link.database}.own", "db": link.database}
            names |= {"in": f"{link.place}/in", "dir": f"{link.place}/dir"}
            errors = self._engine([*before, *attempt.statements(kind, names)], kind)
            changed = self._remote.changed()
            self.lines.append(
                f"{kind} {attempt.name}: {'changed; ' if changed else ''}{' '.join(errors.split())[-300:]}"
            )
            if changed:
                self._remote.mend()
                assert not self._remote.changed(), "the remote's definitions have changed"
            if errors and state(near, link.database, link.place) == link.state:
                self._unchanged[kind, whole_database] = link
            else:
                with suppress(NoSuchObjectError):
                    near.drop_database(link.database, delete_data=False, cascade=True)
        return REMOTE if changed else REFUSED if errors else LINK_ONLY

    def _made(self, near: MetastoreClient, kind: str, whole_database: bool) -> Link:
        database = f"link_writes_{os.getpid()}_{next(self._numbers)}"
        place = self._place / database
        (place / "dir").mkdir(parents=True)
        (place / "in").write_text("9,new\n", encoding="utf-8")
        via = f"'hive.metastore.uris' = '{self._far}'"
        with Remotes(self._settings) as remotes:
            if whole_database:
                remotes.run(f"CREATE REMOTE DATABASE {database} CONNECTED TO {FAR} {via}")
            else:
                near.create_database(types.Database(name=database, locationUri=f"file:{place}/db"))
                remotes.run(f"CREATE REMOTE TABLE {database}.{kind} CONNECTED TO {FAR}.{kind} {via}")
        local_table(near, database, kind, place / "own")
        return Link(database=database, place=place, state=state(near, database, place))

    def outcomes(self, attempt: Attempt, group: str, kinds: Sequence[str]) -> str:
        """Try a statement on each kind of a group; the cell of the page."""
        if group not in attempt.only:
            return ""
        tried = [kind for kind in kinds if kind in GROUPS[group]]
        if attempt.name.startswith(UNWRITTEN):
            tried = [kind for kind in tried if not kind.startswith("parquet")]
        return " / ".join(sorted({self.outcome(attempt, kind) for kind in tried}))


def state(client: MetastoreClient, database: str, place: Path) -> object:
    """Return the definitions of a database, and the files of a directory."""
    try:
        defined = definitions(client, database)
    except NoSuchObjectError:
        return None
    return defined, contents(place)


@contextmanager
def hive(sql: HiveSql) -> Iterator[Engine]:
    def run(statements: Sequence[str], kind: str) -> str:
        del kind
        for statement in statements:
            try:
                sql.execute(statement)
            except HiveSqlError as error:
                return str(error)
        return ""

    yield run


@contextmanager
def spark(uri: str, home: Path) -> Iterator[Engine]:
    """A session in a process of its own: that of the tests has another metastore."""
    environment = {
        **os.environ,
        "JAVA_HOME": str(spark_java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(Path(__file__).parents[3]),
    }
    command = [sys.executable, "-m", "tests.support.link_spark", uri, str(home)]
    with line_server(command, home, environment=environment) as server:
        yield lambda statements, kind: str(server.ask([statements, kind.endswith("_p")]))


def page() -> dict[str, list[str]]:
    """The cells of the page's table, by statement."""
    lines = PAGE.read_text(encoding="utf-8").splitlines() if PAGE.exists() else []
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")]
    # There is another table on the page, of two columns.
    return {row[0].replace("`", ""): row[1:] for row in rows if len(row) == 1 + 2 * len(GROUPS)}


def compare(trial: Trial, attempts: Sequence[Attempt], kinds: Sequence[str], first: int) -> None:
    outcomes = {
        attempt.name: [trial.outcomes(attempt, group, kinds) for group in GROUPS] for attempt in attempts
    }
    expected = {name: cells[first : first + len(GROUPS)] for name, cells in page().items()}
    expected = {name: cells for name, cells in expected.items() if any(cells)}
    assert outcomes == expected, "\n".join(trial.lines)


@pytest.mark.slow
def test_hive(
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    hive_sql_target: HiveSql,
    remote: Remote,
    tmp_path: Path,
) -> None:
    with hive(hive_sql_target) as engine, Trial(target.uri, remote, engine, tmp_path, source.uri) as trial:
        compare(trial, HIVE, HIVES_KINDS, 0)


@pytest.mark.slow
def test_spark(source: EmbeddedMetastore, hive_2: str, remote: Remote, tmp_path: Path) -> None:
    with (
        spark(hive_2, tmp_path) as engine,
        Trial(hive_2, remote, engine, tmp_path, source.uri) as trial,
    ):
        compare(trial, SPARK, SPARKS_KINDS, len(GROUPS))
        # The page describes settings, too.
        inserts = [
            statement
            for statement in SPARK
            if statement.name.startswith(("INSERT", "DataFrameWriter.insert", "SET SERDE"))
        ]
        tried = {
            (insert.name, kind): trial.outcome(insert, kind, before=NO_WRITERS)
            for insert in inserts
            for kind, group in (("orc", "plain"), ("parquet_p", "partitioned"))
            if group in insert.only
        }
        loads = [
            statement for statement in SPARK if statement.name.startswith("LOAD") or statement in inserts
        ]
        tried |= {
            (statement.name, "guarded"): trial.outcome(statement, "parquet_p", before=["GUARDED"])
            for statement in loads
        }
    assert set(tried.values()) == {REFUSED}, (tried, trial.lines)


@pytest.mark.slow
def test_settings_that_close_the_rest_in_hive(
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    hive_sql_target: HiveSql,
    remote: Remote,
    tmp_path: Path,
) -> None:
    """Hive's hook for read-only databases; its authorization by the rights of the store."""
    risky = [statement for statement in HIVE if any(cell.startswith("**") for cell in page()[statement.name])]
    assert risky
    trials = [(statement, kind) for statement in risky for kind in HIVES_KINDS if kind not in ACID]
    with (
        hive(hive_sql_target) as engine,
        Trial(target.uri, remote, engine, tmp_path / "hook", source.uri) as trial,
    ):
        hive_sql_target.set("hive.exec.pre.hooks", HOOK)
        hooked = {
            (statement.name, kind): trial.outcome(statement, kind, whole_database=True)
            for statement, kind in trials
        }
        hive_sql_target.set("hive.exec.pre.hooks", "")
    assert set(hooked.values()) == {REFUSED}, (hooked, trial.lines)
    settings = {
        "hive.security.authorization.enabled": "true",
        "hive.security.authorization.manager": BY_STORE,
    }
    with (
        HiveSql(target, settings=settings) as sql,
        hive(sql) as engine,
        remote.not_writable(),
        Trial(target.uri, remote, engine, tmp_path / "store", source.uri) as trial,
    ):
        # It judges by the directory of the table, which a partitioned link has here.
        plain = [(statement, kind) for statement, kind in trials if kind in PLAIN]
        stored = {(statement.name, kind): trial.outcome(statement, kind) for statement, kind in plain}
    assert set(stored.values()) == {REFUSED}, (
        {attempt: outcome for attempt, outcome in stored.items() if outcome != REFUSED},
        trial.lines,
    )
