"""Reads Iceberg tables as a catalog: one table by its path, or the tables of a catalog of pyiceberg.

Engines get the same entry that Iceberg's own Hive catalog writes: an external table with the location of the
current metadata. Iceberg has no events; a refresh reads the newest metadata.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.catalog.factories import CONNECTION, Factory, Opening
from airflow_hive_federation.catalog.iceberg_errors import PATH, PREFIX, translated
from airflow_hive_federation.catalog.iceberg_metadata import metadata_checked
from airflow_hive_federation.catalog.roles import HIVE_LACKS, NAME_AT_THE_CATALOG, unreadable
from airflow_hive_federation.errors import (
    ConfigurationError,
    InvalidObjectError,
    NoSuchObjectError,
)
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.storage.listing import list_directory

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.types import IcebergType

log = logging.getLogger(__name__)

TYPE = f"{PREFIX}type"
URI = f"{PREFIX}uri"

#: Catalogs of these kinds need no credentials, or send the worker's only to the kind's own hosts.
_OPEN_KINDS = frozenset({"rest", "hive", "sql", "glue"})

#: These properties hold no secrets.
_SHOWN = frozenset({"type", "uri", "warehouse", "name"})
#: Shorter values would occur in any text.
_SHORTEST_SECRET = 6

_METADATA = ".metadata.json"
#: Ends compressed files of old writers (``TableMetadataParser.getOldFileExtension``), which pyiceberg cannot
#: read; the present form is ``.gz.metadata.json``.
_OLD_COMPRESSED = ".metadata.json.gz"
_NUMBERED = re.compile(r"v?(\d+)(?:-[\w-]+)?(?:(?:\.gz)?\.metadata\.json|\.metadata\.json\.gz)")
_HANDLER = "org.apache.iceberg.mr.hive.HiveIcebergStorageHandler"
_SERDE = "org.apache.iceberg.mr.hive.HiveIcebergSerDe"
_INPUT = "org.apache.iceberg.mr.hive.HiveIcebergInputFormat"
_OUTPUT = "org.apache.iceberg.mr.hive.HiveIcebergOutputFormat"


class IcebergTableCatalog:
    """A catalog with one Iceberg table, which it returns under any name.

    :param path: directory of the table, or one of its metadata files.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def identity(self) -> str | None:
        """Return the catalog's own id; see :meth:`.roles.Reader.identity`."""
        return None

    def get_database(self, name: str) -> types.Database:
        """Read a database; see :meth:`.roles.Reader.get_database`."""
        raise NoSuchObjectError(
            f"The Iceberg table at {self._path} is in no database {name}.",
            remedy=f"CREATE REMOTE TABLE, or give {TYPE} for a catalog.",
        )

    def list_tables(self, database: str) -> list[str]:
        """List the tables and views of a database; see :meth:`.roles.Reader.list_tables`."""
        del database
        return []

    def get_table(self, database: str, table: str) -> types.Table:
        """Read a table; see :meth:`.roles.Reader.get_table`."""
        from pyiceberg.table import StaticTable

        with translated(self._path, is_path=True):
            return _entry(database, table, StaticTable.from_metadata(newest_metadata(self._path)))

    def get_tables(self, database: str, names: Sequence[str]) -> list[types.Table]:
        """Read many tables; see :meth:`.roles.Reader.get_tables`."""
        return [self.get_table(database, name) for name in names]

    def list_partition_names(self, database: str, table: str) -> list[str]:
        """List the names of all partitions; see :meth:`.roles.Reader.list_partition_names`.

        An Iceberg table has no partitions in a metastore.
        """
        del database, table
        return []

    def get_partitions(
        self, database: str, table: str, names: Sequence[str] | None = None
    ) -> list[types.Partition]:
        """Read partitions; see :meth:`.roles.Reader.get_partitions`."""
        del database, table, names
        return []

    def close(self) -> None:
        """Close the catalog; see :meth:`.roles.Reader.close`."""


class IcebergCatalog(IcebergTableCatalog):
    """A catalog that pyiceberg opens with these properties: REST, SQL, Hive, Glue, ….

    pyiceberg's own configuration of catalogs (``PYICEBERG_CATALOG__…``, ``.pyiceberg.yaml``) is not read: the
    name of a catalog that is configured there would send its secrets to another server.

    :param properties: pyiceberg's properties, without their prefix.
    """

    def __init__(self, properties: dict[str, str]) -> None:
        super().__init__("")
        self._properties = properties
        # pyiceberg's catalogs are not for several threads: that of Hive has one connection.
        self._lock = threading.RLock()

    def get_database(self, name: str) -> types.Database:
        """Read a database; see :meth:`.roles.Reader.get_database`."""
        with self._asking(f"namespace {name}"):
            properties = self._catalog.load_namespace_properties(self._namespace(name))
        return types.Database(
            name=name.lower(),
            description=properties.get("comment"),
            locationUri=properties.get("location"),
            parameters={},
        )

    def list_tables(self, database: str) -> list[str]:
        """List the tables and views of a database; see :meth:`.roles.Reader.list_tables`.

        Names are in lower case, as in Hive.

        :raises NoSuchObjectError: if the namespace does not exist.
        :raises InvalidObjectError: two tables have names that Hive cannot tell apart.
        """
        tables = self._tables(database)
        for names in tables.values():
            _refuse_alike(database, names)
        with self._asking(f"namespace {database}"):
            self._name_nested(database, self._namespace(database))
        return sorted(tables)

    def get_table(self, database: str, table: str) -> types.Table:
        """Read a table; see :meth:`.roles.Reader.get_table`.

        :raises InvalidObjectError: two tables have names that Hive cannot tell apart, or the table's metadata
            cannot be read.
        """
        named = self._tables(database).get(table.lower())
        if named is not None:
            return self._entry(database, table, _refuse_alike(database, named))
        # A list is no evidence that the table does not exist.
        with self._asking(f"namespace {database}"):
            namespace = self._namespace(database)
        return self._entry(database, table, (*namespace, table))

    def get_tables(self, database: str, names: Sequence[str]) -> list[types.Table]:
        """Read many tables; see :meth:`.roles.Reader.get_tables`."""
        tables = self._tables(database)
        named = [
            (name, _refuse_alike(database, tables[name.lower()])) for name in names if name.lower() in tables
        ]
        return [
            table for name, identifier in named if (table := self._one_of_many(database, name, identifier))
        ]

    def close(self) -> None:
        """Close the catalog, and the connections to its database; see :meth:`.roles.Reader.close`."""
        # Before pyiceberg 0.10, catalogs had no such method.
        close = getattr(self.__dict__.get("_catalog"), "close", None)
        if close is not None:
            close()

    def _one_of_many(self, database: str, table: str, named: tuple[str, ...]) -> types.Table | None:
        try:
            return self._entry(database, table, named)
        except NoSuchObjectError:
            return None
        except InvalidObjectError as error:
            return unreadable(database, table, str(error.facts["reason"]))

    def _entry(self, database: str, table: str, named: tuple[str, ...]) -> types.Table:
        subject = f"{database}.{table}"
        with self._asking(subject), metadata_checked(subject):
            entry = _entry(database, table, self._loaded(named))
        if named[-1] != named[-1].lower():
            entry.parameters = {**(entry.parameters or {}), NAME_AT_THE_CATALOG: named[-1]}
        return entry

    def _loaded(self, named: tuple[str, ...]) -> Table:
        from pyiceberg.exceptions import NoSuchPropertyException, NoSuchTableError

        try:
            table: Table = self._catalog.load_table(named)
        except NoSuchPropertyException as error:
            # Of a Hive or Glue catalog: the table with this name is none of Iceberg's.
            raise NoSuchTableError(str(error)) from error
        return table

    def _tables(self, database: str) -> dict[str, list[tuple[str, ...]]]:
        """Return Iceberg's identifiers of a namespace's tables, by their names in lower case.

        :raises NoSuchObjectError: if the namespace does not exist.
        """
        tables: dict[str, list[tuple[str, ...]]] = {}
        with self._asking(f"namespace {database}"):
            for identifier in self._catalog.list_tables(self._namespace(database)):
                tables.setdefault(str(identifier[-1]).lower(), []).append(tuple(map(str, identifier)))
        return tables

    def _namespace(self, database: str) -> tuple[str, ...]:
        """Find Iceberg's name of a namespace, in which dots separate levels and upper case may occur.

        A name that no list has is returned as it is: the catalog is then asked for it.
        """
        namespace: tuple[str, ...] = ()
        for level in database.split("."):
            below = [str(child[-1]) for child in self._catalog.list_namespaces(namespace)]
            alike = [child_name for child_name in below if child_name.lower() == level.lower()]
            if level not in alike and len(alike) > 1:
                raise InvalidObjectError(
                    f"Iceberg's namespaces {', '.join(sorted(alike))} differ only in case, which "
                    "Hive ignores.",
                    remedy="Rename one of them.",
                )
            namespace = (*namespace, level if level in alike or not alike else alike[0])
        return namespace

    def _name_nested(self, database: str, namespace: tuple[str, ...]) -> None:
        nested = sorted(".".join(map(str, child)) for child in self._catalog.list_namespaces(namespace))
        if nested:
            log.warning(
                "%s: tables of the nested namespaces %s are not among its tables; each can be a remote "
                "database of its own.",
                database,
                ", ".join(nested),
            )

    @contextmanager
    def _asking(self, subject: str) -> Iterator[None]:
        """Let one thread call the catalog, translate errors, and hide secrets that some servers repeat."""
        with self._lock, translated(subject, hidden=_secrets_among(self._properties)):
            yield

    @cached_property
    def _catalog(self) -> Any:
        from pyiceberg.catalog import AVAILABLE_CATALOGS, CatalogType, infer_catalog_type

        from airflow_hive_federation.catalog.iceberg_rest import ConfinedRestCatalog

        with self._asking("the catalog"):
            properties = {key: value for key, value in self._properties.items() if key != "name"}
            name = self._properties.get("name", "remote")
            kind = properties.get("type")
            # Without a type, the scheme of the URI names the kind.
            inferred: Any = dict(properties)
            catalog_type: Any = CatalogType(kind.lower()) if kind else infer_catalog_type(name, inferred)
            if catalog_type is CatalogType.REST:
                return ConfinedRestCatalog(name, **properties)
            return AVAILABLE_CATALOGS[catalog_type](name, properties)


def _refuse_alike(database: str, named: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the identifier of the only table with a name in lower case.

    :raises InvalidObjectError: if several tables have the name.
    """
    if len(named) > 1:
        raise InvalidObjectError(
            f"Tables {' and '.join(name[-1] for name in named)} of Iceberg's namespace {database} differ "
            "only in case, which Hive ignores.",
            remedy="Rename one of them, or link the other tables one by one.",
        )
    return named[0]


def newest_metadata(path: str) -> str:
    """Return the newest metadata file of a table without a catalog.

    Writers number the files: ``v3.metadata.json`` (``HadoopTableOperations``), ``00003-<uuid>.metadata.json``
    (all catalogs). The hint file of ``HadoopTableOperations`` may be old or missing.

    :param path: directory of the table, or one of its metadata files, which is returned unchanged.
    :raises NoSuchObjectError: if the directory has no metadata file.
    :raises InvalidObjectError: if several files have the highest number: one of them is of a writer whose
        commit a catalog has refused. Or if the newest file is of a form that cannot be read.
    """
    if path.endswith((_METADATA, _OLD_COMPRESSED)):
        return _readable(path)
    directory = f"{path.rstrip('/')}/metadata"
    numbered = [
        (int(match[1]), name) for name in list_directory(directory) if (match := _NUMBERED.fullmatch(name))
    ]
    if not numbered:
        raise NoSuchObjectError(
            f"There is no Iceberg table at {path}.", remedy=f"Check {PATH}: it is the table's directory."
        )
    highest, _ = max(numbered)
    newest = sorted(name for number, name in numbered if number == highest)
    if len(newest) > 1:
        raise InvalidObjectError(
            f"{' and '.join(newest)} in {directory} have the same number, and only the catalog of the table "
            "knows which of them is the table's.",
            remedy=f"Link the table through its catalog, or give the right file as {PATH}.",
        )
    return _readable(f"{directory}/{newest[0]}")


def _readable(path: str) -> str:
    if path.endswith(_OLD_COMPRESSED):
        raise InvalidObjectError(
            f"{path} is compressed in a form of old Iceberg versions, which pyiceberg cannot read.",
            remedy="Let a newer version of Iceberg write the table once.",
        )
    return path


def _entry(database: str, name: str, table: Any) -> types.Table:
    """Make the same entry that ``org.apache.iceberg.hive.HiveTableOperations`` writes."""
    columns = [
        types.FieldSchema(name=named, type=_hive_type(field.field_type), comment=field.doc)
        for named, field in zip(_column_names(table.schema().fields), table.schema().fields, strict=True)
    ]
    return types.Table(
        dbName=database.lower(),
        tableName=name.lower(),
        tableType="EXTERNAL_TABLE",
        sd=types.StorageDescriptor(
            cols=columns,
            location=table.location(),
            inputFormat=_INPUT,
            outputFormat=_OUTPUT,
            numBuckets=-1,
            serdeInfo=types.SerDeInfo(serializationLib=_SERDE, parameters={}),
            bucketCols=[],
            sortCols=[],
            parameters={},
        ),
        partitionKeys=[],
        parameters={
            "EXTERNAL": "TRUE",
            "table_type": "ICEBERG",
            "storage_handler": _HANDLER,
            "metadata_location": table.metadata_location,
            "uuid": str(table.metadata.table_uuid),
        },
    )


def _hive_type(field_type: IcebergType) -> str:
    """Return the Hive type of an Iceberg type, with :data:`.roles.HIVE_LACKS` before what Hive lacks.

    Hive lacks types of Iceberg's format version 3: timestamps with nanoseconds, geometries and geographies.
    """
    from pyiceberg.catalog.hive import SchemaToHiveConverter
    from pyiceberg.schema import visit
    from pyiceberg.types import PrimitiveType

    class HiveTypes(SchemaToHiveConverter):
        def primitive(self, primitive: PrimitiveType) -> str:
            try:
                return super().primitive(primitive)
            except KeyError:
                return f"{HIVE_LACKS}{primitive}"

    return str(visit(field_type, HiveTypes(hive2_compatible=False)))


def _column_names(fields: Sequence[Any]) -> list[str]:
    """Return the column names in Hive's lower case.

    If two of them become equal, return Iceberg's names, so that the caller can refuse the table.
    """
    names = [str(field.name) for field in fields]
    lower = [name.lower() for name in names]
    return lower if len(set(lower)) == len(lower) else names


def _secrets_among(properties: Mapping[str, str]) -> list[str]:
    """Return the values to hide: those of all secret properties, and the second halves of credentials."""
    values = [value for name, value in properties.items() if name not in _SHOWN]
    return [
        secret
        for value in values
        for secret in (value, value.rpartition(":")[2])
        if len(secret) >= _SHORTEST_SECRET
    ]


def _open(opening: Opening) -> IcebergTableCatalog:
    try:
        import pyiceberg  # noqa: F401 - checks that it is installed
    except ImportError as error:
        raise ConfigurationError(
            "Iceberg needs pyiceberg.", remedy="pip install 'airflow-hive-federation[iceberg]'."
        ) from error
    if PATH in opening.properties:
        return IcebergTableCatalog(opening.properties[PATH])
    properties = {
        name.removeprefix(PREFIX): value
        for name, value in opening.properties.items()
        if name.startswith(PREFIX)
    }
    if CONNECTION in opening.properties:
        return IcebergCatalog(_by_connection(opening, properties))
    _check_open(properties)
    return IcebergCatalog(properties)


def _by_connection(opening: Opening, given: dict[str, str]) -> dict[str, str]:
    """Merge the connection's properties with those of the remote that do not contradict them."""
    connection_id = opening.properties[CONNECTION]
    properties = dict(opening.connections.iceberg(connection_id))
    others = sorted(name for name in given if given[name] != properties.get(name, given[name]))
    if "uri" in given and "uri" not in properties:
        others.append("uri")
    if others:
        raise ConfigurationError(
            f"Remote {opening.remote} has its own {', '.join(f'{PREFIX}{name}' for name in others)} beside "
            f"connection {connection_id!r}, whose secrets would go there.",
            remedy="Leave it out: the connection has it. Another catalog needs a connection of its own.",
        )
    return {**given, **properties}


def _check_open(given: dict[str, str]) -> None:
    """Refuse catalogs that would send credentials of the worker's environment to the host of the URI.

    :raises ConfigurationError: the catalog is a database server, which would get passwords, or is of another
        kind that would get keys.
    """
    kind, uri = given.get("type", "").lower(), given.get("uri", "")
    server = not uri.startswith("sqlite:") and (kind == "sql" or uri.startswith("postgresql"))
    if server or (kind and kind not in _OPEN_KINDS):
        raise ConfigurationError(
            f"A catalog of type {kind or 'sql'!r}"
            + (f" at {uri!r}" if uri else "")
            + " is not opened without "
            "a connection.",
            remedy=f"Put its properties into an Airflow connection, and name that one: '{CONNECTION}' = '…'. "
            f"Without one, these types can be opened: {', '.join(sorted(_OPEN_KINDS))} (of SQL: SQLite).",
        )


ICEBERG = Factory(
    name="iceberg",
    class_names=("IcebergTableHiveClientFactory",),
    properties={
        PATH: "directory of one table, or one of its metadata files",
        CONNECTION: "id of an Airflow connection with the catalog's properties and credentials",
        TYPE: "kind of a catalog: rest, sql, hive, glue, …",
        URI: "where the catalog is",
        f"{PREFIX}name": "its name, where one place holds several (sql)",
        f"{PREFIX}warehouse": "its warehouse",
    },
    required=((PATH, TYPE, URI, CONNECTION),),
    open=_open,
)
