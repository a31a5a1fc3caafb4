"""A process that reads a table of a database as ingestion does, and prints how much memory that took."""

from __future__ import annotations

import json
import sys
from contextlib import closing

from airflow_hive_federation.ingest.queries import QueryRequest, _fetched, keyset_query
from airflow_hive_federation.model.types import Column
from tests.support.databases import mariadb_connection, postgresql_connection
from tests.support.process_memory import peak_memory_bytes

_CONNECTIONS = {"postgresql": postgresql_connection, "mariadb": mariadb_connection}


def main() -> None:
    """Read the table ``large`` of the database that the arguments name, and its port."""
    kind, port = sys.argv[1:]
    request = QueryRequest(table="d.t", sql="large", order_by=["a"])
    columns = [Column.of("a", "int"), Column.of("b", "string")]
    query, parameters = keyset_query(request.sql, request.order_by, None, "%s")
    with closing(_CONNECTIONS[kind](int(port))) as connection:
        before, count = peak_memory_bytes(), 0
        for _names, rows in _fetched(
            connection, query, parameters, request, columns, on_columns=lambda _columns: None
        ):
            count += len(rows)
    print(json.dumps({"rows": count, "taken_bytes": peak_memory_bytes() - before}))


if __name__ == "__main__":
    main()
