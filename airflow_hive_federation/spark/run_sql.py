"""Runs one SQL statement on the tables of a metastore in a Spark job.

A file holds the statement, since process lists show command lines. The job's properties name the metastore
(``spark.hadoop.hive.metastore.uris``). The job reads transactional tables only as the file describes them,
and refuses other transactional tables.
"""

from __future__ import annotations

import argparse
from typing import Any

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.model import bounded_json
from airflow_hive_federation.model.json_values import Fields, json_object, list_of, text
from airflow_hive_federation.storage.filesystem import reading
from airflow_hive_federation.storage.options import StorageOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job's arguments."""
    parser.add_argument(
        "--statement", required=True, help='URI of a JSON file: {"database": …, "sql": …, "acid": […]}'
    )
    parser.add_argument("--max-rows", type=int, default=0, help="rows of a query that are returned at most")


def run(_spark: object, args: argparse.Namespace, options: StorageOptions | None = None) -> dict[str, Any]:
    """Run the job with parsed arguments; return columns, and rows as strings.

    :raises ConfigurationError: the file holds no statement.
    """
    from pyspark.sql import SparkSession

    from airflow_hive_federation.spark.acid_tables import acid_frames, sql_with_frames
    from airflow_hive_federation.tables.read.guard import guarded

    with reading(args.statement, options) as file:
        try:
            statement = Fields(bounded_json.loads(file.read()))
            database, sql = (statement.needed(field, text) for field in ("database", "sql"))
            acid = statement.optional("acid", list_of(json_object), default=())
        except ValueError as error:
            raise ConfigurationError(
                f"{args.statement} holds no statement: {error}.", remedy="Run the task again."
            ) from error
    # The session uses the running context, whose properties name the metastore.
    session = guarded(SparkSession.builder.enableHiveSupport().getOrCreate())
    session.catalog.setCurrentDatabase(database)
    answer = sql_with_frames(session, sql, acid_frames(session, acid, options), database)
    rows = answer.limit(args.max_rows).collect() if args.max_rows and answer.columns else []
    return {
        "columns": list(answer.columns),
        "rows": [[None if value is None else str(value) for value in row] for row in rows],
    }
