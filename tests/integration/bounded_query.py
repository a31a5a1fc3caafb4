"""A process that ingests a query of a database, and tells how much memory it took for that."""

from __future__ import annotations

import json
import resource
import sys

# Loaded before the measurement begins.
import airflow_hive_federation.ingest.connection  # noqa: F401
from airflow_hive_federation.ingest.queries import QueryRequest, ingest_query
from airflow_hive_federation.metastore import MetastoreSettings
from tests.integration.databases import mariadb_connection, postgresql_connection

_CONNECTIONS = {"postgresql": postgresql_connection, "mariadb": mariadb_connection}


def peak_bytes() -> int:
    """The most memory this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """Ingest what the arguments say: a database, its port, a metastore, and a request as JSON."""
    kind, port, uri, request = sys.argv[1:]
    _CONNECTIONS[kind](int(port)).close()
    before = peak_bytes()
    report = ingest_query(
        MetastoreSettings(uris=(uri,)),
        QueryRequest(**json.loads(request)),
        lambda: _CONNECTIONS[kind](int(port)),
        placeholder="%s",
    )
    print(json.dumps({"records": report.records, "taken_bytes": peak_bytes() - before}))


if __name__ == "__main__":
    main()
