"""Reads AWS Glue as a catalog.

Glue answers in pages, and returns the partitions of large tables in segments, which are read side by side.
Glue has no events, transactions or write ids: so a refresh compares everything. Column statistics need calls
of their own: one per hundred columns of a table, and one per partition. They are read for a partition whose
parameters mark statistics, as Hive's and Spark's parameters do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from airflow_hive_federation.catalog import glue_answers as answers
from airflow_hive_federation.catalog.allowed import check_endpoint
from airflow_hive_federation.catalog.factories import CONNECTION, Factory, Opening
from airflow_hive_federation.catalog.glue_expressions import glue_expression
from airflow_hive_federation.catalog.glue_statistics import hive_statistics
from airflow_hive_federation.catalog.thrift import TIMEOUT, duration_s
from airflow_hive_federation.errors import (
    ConfigurationError,
    InvalidObjectError,
    MetastoreServerError,
    MetastoreTimeoutError,
    MetastoreUnreachableError,
    NoSuchObjectError,
)
from airflow_hive_federation.metastore.calls.base import batches
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.partitions import partition_name, unescape

if TYPE_CHECKING:
    import boto3
    from botocore.exceptions import ClientError

log = logging.getLogger(__name__)

REGION = "aws.region"
ENDPOINT = "aws.glue.endpoint"
#: Amazon's own client for Hive uses this name.
CATALOG_ID = "hive.metastore.glue.catalogid"
ROLE = "aws.glue.role.arn"

_CONNECT_TIMEOUT_S = 10.0
_READ_TIMEOUT_S = 60.0
_ATTEMPTS = 5
#: Sets the segments of ``GetPartitions``, which allows at most 10.
_SEGMENTS = 4
#: Limits one call of ``BatchGetPartition``.
_PARTITIONS_PER_CALL = 1000
#: Limits one call of ``GetColumnStatisticsFor…``.
_COLUMNS_PER_CALL = 100
_THROTTLED = frozenset(
    {"ThrottlingException", "Throttling", "InternalServiceException", "OperationTimeoutException"}
)


class GlueCatalog:
    """A Glue catalog that is read through ``boto3``.

    :param connect: makes the client of ``boto3``; it is called before the first request.
    :param catalog_id: id of the account that owns the catalog; ``None`` is the caller's own.
    """

    def __init__(self, connect: Callable[[], answers.Client], *, catalog_id: str | None = None) -> None:
        self._connect = connect
        self._made: answers.Client | None = None
        self._whose = {"CatalogId": catalog_id} if catalog_id else {}

    def identity(self) -> str | None:
        """Return the catalog's own id; see :meth:`.roles.Reader.identity`."""
        return None

    def get_database(self, name: str) -> types.Database:
        """Read a database; see :meth:`.roles.Reader.get_database`."""
        with _translated(f"database {name}"):
            database = self._client().get_database(Name=name, **self._whose)["Database"]
        return types.Database(
            name=database["Name"].lower(),
            description=database.get("Description"),
            locationUri=database.get("LocationUri"),
            parameters=database.get("Parameters") or {},
        )

    def list_tables(self, database: str) -> list[str]:
        """List the tables and views of a database; see :meth:`.roles.Reader.list_tables`."""
        return [str(table.tableName) for table in self.iter_tables(database)]

    def get_table(self, database: str, table: str) -> types.Table:
        """Read a table; see :meth:`.roles.Reader.get_table`."""
        with _translated(f"table {database}.{table}"):
            answer = self._client().get_table(DatabaseName=database, Name=table, **self._whose)["Table"]
        return _table(database, answer)

    def get_tables(self, database: str, names: Sequence[str]) -> list[types.Table]:
        """Read many tables, each by a call; see :meth:`.roles.Reader.get_tables`."""
        self._client()

        def of_one(name: str) -> types.Table | None:
            try:
                return self.get_table(database, name)
            except NoSuchObjectError:
                return None

        with ThreadPoolExecutor(_SEGMENTS, thread_name_prefix="glue") as threads:
            return [table for table in threads.map(of_one, names) if table is not None]

    def iter_tables(self, database: str) -> Iterator[types.Table]:
        """Yield the tables and views of a database; see :meth:`.roles.TableLister.iter_tables`."""
        with _translated(f"database {database}"):
            pages = self._client().get_paginator("get_tables").paginate(DatabaseName=database, **self._whose)
            for page in pages:
                yield from (_table(database, table) for table in page["TableList"])

    def list_partition_names(self, database: str, table: str) -> list[str]:
        """List the names of all partitions; see :meth:`.roles.Reader.list_partition_names`."""
        keys = _keys(self.get_table(database, table))
        partitions = self._partitions(database, table, ExcludeColumnSchema=True)
        return sorted(partition_name(keys, partition["Values"]) for partition in partitions)

    def get_partitions(
        self, database: str, table: str, names: Sequence[str] | None = None
    ) -> list[types.Partition]:
        """Read partitions; see :meth:`.roles.Reader.get_partitions`."""
        if names is None:
            partitions = self._partitions(database, table)
        else:
            keys = {"DatabaseName": database, "TableName": table, **self._whose}
            partitions = [
                partition
                for batch in batches(names, _PARTITIONS_PER_CALL)
                for partition in self._named(keys, batch)
            ]
        return [_partition(database, table, partition) for partition in partitions]

    def find_partitions(self, database: str, table: str, where: str) -> list[types.Partition]:
        """Read the partitions that meet a condition; see :meth:`.roles.PartitionFilter.find_partitions`."""
        partitions = self._partitions(database, table, Expression=glue_expression(where))
        return [_partition(database, table, partition) for partition in partitions]

    def table_statistics(self, table: types.Table) -> list[types.ColumnStatisticsObj]:
        """Read the column statistics of a table; see :meth:`.roles.TableStatistics.table_statistics`."""
        request = {"DatabaseName": table.dbName, "TableName": table.tableName, **self._whose}
        client = self._client()
        return self._statistics(client.get_column_statistics_for_table, request, _columns_of(table))

    def partition_statistics(
        self, database: str, table: str, names: Sequence[str]
    ) -> dict[str, list[types.ColumnStatisticsObj]]:
        """Read statistics by partition; see :meth:`.roles.PartitionStatistics.partition_statistics`."""
        columns = _columns_of(self.get_table(database, table))
        client = self._client()

        def of_one(name: str) -> list[types.ColumnStatisticsObj]:
            request = {
                "DatabaseName": database,
                "TableName": table,
                "PartitionValues": _values(name),
                **self._whose,
            }
            return self._statistics(client.get_column_statistics_for_partition, request, columns)

        with ThreadPoolExecutor(_SEGMENTS, thread_name_prefix="glue") as threads:
            by_name = zip(names, threads.map(of_one, names), strict=True)
            return {name: statistics for name, statistics in by_name if statistics}

    def close(self) -> None:
        """Close the catalog; see :meth:`.roles.Reader.close`."""
        if self._made is not None:
            self._made.close()
            self._made = None

    def _client(self) -> answers.Client:
        if self._made is None:
            self._made = self._connect()
        return self._made

    def _partitions(self, database: str, table: str, **choice: object) -> list[answers.Partition]:
        client = self._client()

        def segment(number: int) -> list[answers.Partition]:
            with _translated(f"table {database}.{table}"):
                pages = client.get_paginator("get_partitions").paginate(
                    DatabaseName=database,
                    TableName=table,
                    Segment={"SegmentNumber": number, "TotalSegments": _SEGMENTS},
                    **choice,
                    **self._whose,
                )
                return [partition for page in pages for partition in page["Partitions"]]

        with ThreadPoolExecutor(_SEGMENTS, thread_name_prefix="glue") as threads:
            partitions = [partition for part in threads.map(segment, range(_SEGMENTS)) for partition in part]
        # A server without segments returns all partitions in each of them.
        return list({tuple(partition["Values"]): partition for partition in partitions}.values())

    def _statistics(
        self, call: answers.StatisticsCall, owner: Mapping[str, object], columns: Sequence[str]
    ) -> list[types.ColumnStatisticsObj]:
        statistics = []
        for names in batches(columns, _COLUMNS_PER_CALL):
            try:
                with _translated(f"statistics of {owner['DatabaseName']}.{owner['TableName']}"):
                    answer = call(**owner, ColumnNames=names)
            except ConfigurationError as error:
                # The caller may lack the right to read statistics; engines plan without them too.
                log.warning("Left out: %s", error)
                return []
            # The answer lists columns without statistics among its errors.
            statistics += [hive_statistics(column) for column in answer.get("ColumnStatisticsList", [])]
        return [entry for entry in statistics if entry is not None]

    def _named(self, keys: Mapping[str, object], names: Sequence[str]) -> Iterator[answers.Partition]:
        wanted: list[answers.PartitionKey] = [{"Values": _values(name)} for name in names]
        for _ in range(_ATTEMPTS):
            with _translated(f"table {keys['DatabaseName']}.{keys['TableName']}"):
                answer = self._client().batch_get_partition(**keys, PartitionsToGet=wanted)
            yield from answer.get("Partitions", [])
            wanted = answer.get("UnprocessedKeys") or []
            if not wanted:
                return
        raise MetastoreTimeoutError(
            f"Glue left {len(wanted)} partitions of {keys['TableName']} unanswered {_ATTEMPTS} times.",
            remedy="Try again later.",
        )


def _table(database: str, table: answers.Table) -> types.Table:
    return types.Table(
        dbName=database.lower(),
        tableName=table["Name"].lower(),
        owner=table.get("Owner"),
        createTime=_seconds(table.get("CreateTime")),
        retention=table.get("Retention", 0),
        sd=_storage(table.get("StorageDescriptor") or {}),
        partitionKeys=_columns(table.get("PartitionKeys")),
        parameters=dict(table.get("Parameters") or {}),
        viewOriginalText=table.get("ViewOriginalText"),
        viewExpandedText=table.get("ViewExpandedText"),
        # Glue does not require a table type.
        tableType=table.get("TableType") or "EXTERNAL_TABLE",
    )


def _partition(database: str, table: str, partition: answers.Partition) -> types.Partition:
    return types.Partition(
        values=list(partition["Values"]),
        dbName=database.lower(),
        tableName=table.lower(),
        createTime=_seconds(partition.get("CreationTime")),
        sd=_storage(partition.get("StorageDescriptor") or {}),
        parameters=dict(partition.get("Parameters") or {}),
    )


def _storage(descriptor: answers.StorageDescriptor) -> types.StorageDescriptor:
    serde = descriptor.get("SerdeInfo") or {}
    return types.StorageDescriptor(
        cols=_columns(descriptor.get("Columns")),
        location=descriptor.get("Location"),
        inputFormat=descriptor.get("InputFormat"),
        outputFormat=descriptor.get("OutputFormat"),
        compressed=descriptor.get("Compressed", False),
        numBuckets=descriptor.get("NumberOfBuckets", -1),
        serdeInfo=types.SerDeInfo(
            name=serde.get("Name"),
            serializationLib=serde.get("SerializationLibrary"),
            parameters=dict(serde.get("Parameters") or {}),
        ),
        # Hive has empty lists and maps where Glue has null.
        bucketCols=list(descriptor.get("BucketColumns") or []),
        sortCols=[
            types.Order(col=column["Column"], order=column["SortOrder"])
            for column in descriptor.get("SortColumns") or []
        ],
        parameters=dict(descriptor.get("Parameters") or {}),
    )


def _columns(columns: Sequence[answers.Column] | None) -> list[types.FieldSchema]:
    return [
        types.FieldSchema(
            name=column["Name"].lower(), type=column.get("Type") or "string", comment=column.get("Comment")
        )
        for column in columns or []
    ]


def _columns_of(table: types.Table) -> list[str]:
    return [column.name or "" for column in (table.sd and table.sd.cols) or []]


def _values(name: str) -> list[str]:
    return [unescape(part.partition("=")[2]) for part in name.split("/")]


def _keys(table: types.Table) -> list[str]:
    return [key.name or "" for key in table.partitionKeys or []]


def _seconds(moment: datetime | None) -> int:
    return int(moment.timestamp()) if moment else 0


@contextmanager
def _translated(subject: str) -> Iterator[None]:
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        ConnectTimeoutError,
        EndpointConnectionError,
        HTTPClientError,
        ReadTimeoutError,
    )

    try:
        yield
    except ClientError as error:
        raise _client_error(subject, error) from error
    except (ConnectTimeoutError, ReadTimeoutError) as error:
        raise MetastoreTimeoutError(f"Glue, {subject}: {error}", remedy="Try again later.") from error
    except (EndpointConnectionError, HTTPClientError) as error:
        raise MetastoreUnreachableError(
            f"Glue, {subject}: {error}", remedy=f"Check {REGION} and {ENDPOINT}."
        ) from error
    except BotoCoreError as error:
        # The region, the credentials or the profile are missing.
        raise ConfigurationError(
            f"Glue, {subject}: {error}", remedy=f"Set {REGION}, and credentials by {CONNECTION} or a role."
        ) from error


def _client_error(subject: str, error: ClientError) -> Exception:
    code = error.response.get("Error", {}).get("Code", "")
    message = f"Glue, {subject}: {error}"
    if code == "EntityNotFoundException":
        return NoSuchObjectError(message)
    if code == "InvalidInputException":
        return InvalidObjectError(message)
    if code in _THROTTLED:
        return MetastoreTimeoutError(message, remedy="Try again later.")
    if code in {"AccessDeniedException", "UnrecognizedClientException", "ExpiredTokenException"}:
        return ConfigurationError(
            message, remedy="Grant glue:Get* to the caller, or correct its credentials."
        )
    return MetastoreServerError(message)


def _open(opening: Opening) -> GlueCatalog:
    properties = opening.properties
    session_options = (
        dict(opening.connections.session(properties[CONNECTION])) if CONNECTION in properties else {}
    )
    endpoint = _endpoint(properties, session_options.pop("endpoint_url", None))

    def connect() -> answers.Client:
        try:
            import boto3
            from botocore.config import Config
        except ImportError as error:
            raise ConfigurationError(
                "Glue needs boto3.", remedy="pip install 'airflow-hive-federation[glue]'."
            ) from error
        region = properties.get(REGION)
        read_s = duration_s(properties, TIMEOUT) if TIMEOUT in properties else _READ_TIMEOUT_S
        config = Config(
            connect_timeout=_CONNECT_TIMEOUT_S,
            read_timeout=read_s,
            max_pool_connections=2 * _SEGMENTS,
            retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
        )
        with _translated(f"of {opening.remote}"):
            session = boto3.Session(**{**session_options, **({"region_name": region} if region else {})})
            if ROLE in properties:
                session = _in_role(session, properties[ROLE])
            client: answers.Client = session.client("glue", endpoint_url=endpoint, config=config)
            return client

    return GlueCatalog(connect, catalog_id=properties.get(CATALOG_ID))


def _endpoint(properties: Mapping[str, str], of_connection: str | None) -> str | None:
    """Return the endpoint of the requests: the connection's, or one that an administrator allows."""
    named = properties.get(ENDPOINT)
    if named and named != of_connection:
        check_endpoint(ENDPOINT, named)
    return named or of_connection


def _in_role(session: boto3.Session, role: str) -> boto3.Session:
    import boto3
    import botocore.session
    from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials
    from botocore.exceptions import NoCredentialsError

    source = session.get_credentials()
    if source is None:
        raise NoCredentialsError
    fetcher = AssumeRoleCredentialFetcher(
        client_creator=session._session.create_client,  # noqa: SLF001 - boto3 has no name for it
        source_credentials=source,
        role_arn=role,
        extra_args={"RoleSessionName": "airflow-hive-federation"},
    )
    renewing = botocore.session.get_session()
    renewing._credentials = DeferredRefreshableCredentials(  # noqa: SLF001 - as botocore's users do
        refresh_using=fetcher.fetch_credentials, method="assume-role"
    )
    return boto3.Session(botocore_session=renewing, region_name=session.region_name)


GLUE = Factory(
    name="glue",
    class_names=("AWSGlueDataCatalogHiveClientFactory",),
    properties={
        REGION: "region of the catalog",
        ENDPOINT: "URL of another endpoint than the region's",
        CATALOG_ID: "id of the account whose catalog it is",
        ROLE: "role to assume",
        CONNECTION: "id of an Airflow connection of type aws",
        TIMEOUT: "time to wait for an answer (60s)",
    },
    open=_open,
)
