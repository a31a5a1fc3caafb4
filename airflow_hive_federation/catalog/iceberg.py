"""Iceberg tables as remotes: one by its path, or those of a catalog that pyiceberg knows.

What engines get is what Iceberg's own Hive catalog writes: an external table with the location of the current
metadata. Iceberg has no events; a refresh takes the newest metadata over.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from airflow_hive_federation.catalog.factories import CONNECTION, HIDDEN, Factory, Opening
from airflow_hive_federation.errors import (
    ConfigurationError,
    HiveFederationError,
    InvalidObjectError,
    MetastoreUnreachableError,
    NoSuchObjectError,
)
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.storage.listing import list_directory

log = logging.getLogger(__name__)

PATH = "iceberg.table.path"
PREFIX = "iceberg.catalog."
TYPE = f"{PREFIX}type"
URI = f"{PREFIX}uri"

#: Kinds of catalogs that are asked without credentials, or with those of the worker at the kind's own hosts.
_OPEN_KINDS = frozenset({"rest", "hive", "sql", "glue"})

#: Properties without secrets.
_SHOWN = frozenset({"type", "uri", "warehouse", "name"})
#: Shorter ones would be found everywhere.
_SHORTEST_SECRET = 6

_METADATA = ".metadata.json"
_NUMBERED = re.compile(r"v?(\d+)(?:-[\w-]+)?(?:\.gz)?\.metadata\.json")
_HANDLER = "org.apache.iceberg.mr.hive.HiveIcebergStorageHandler"
_SERDE = "org.apache.iceberg.mr.hive.HiveIcebergSerDe"
_INPUT = "org.apache.iceberg.mr.hive.HiveIcebergInputFormat"
_OUTPUT = "org.apache.iceberg.mr.hive.HiveIcebergOutputFormat"


class IcebergTableCatalog:
    """One Iceberg table, whatever it is called.

    :param path: its directory, or one of its metadata files.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def identity(self) -> str | None:
        """See :meth:`.roles.Reader.identity`."""
        return None

    def get_database(self, name: str) -> types.Database:
        """See :meth:`.roles.Reader.get_database`."""
        raise NoSuchObjectError(
            f"The Iceberg table at {self._path} is in no database {name}.",
            remedy=f"CREATE REMOTE TABLE, or give {TYPE} for a catalog.",
        )

    def list_tables(self, database: str) -> list[str]:
        """See :meth:`.roles.Reader.list_tables`."""
        del database
        return []

    def get_table(self, database: str, table: str) -> types.Table:
        """See :meth:`.roles.Reader.get_table`."""
        from pyiceberg.table import StaticTable

        with _translated(self._path):
            return _entry(database, table, StaticTable.from_metadata(newest_metadata(self._path)))

    def get_tables(self, database: str, names: Sequence[str]) -> list[types.Table]:
        """See :meth:`.roles.Reader.get_tables`."""
        return [self.get_table(database, name) for name in names]

    def list_partition_names(self, database: str, table: str) -> list[str]:
        """See :meth:`.roles.Reader.list_partition_names`: to a metastore, Iceberg's tables have none."""
        del database, table
        return []

    def get_partitions(
        self, database: str, table: str, names: Sequence[str] | None = None
    ) -> list[types.Partition]:
        """See :meth:`.roles.Reader.get_partitions`."""
        del database, table, names
        return []

    def close(self) -> None:
        """See :meth:`.roles.Reader.close`."""


class IcebergCatalog(IcebergTableCatalog):
    """The tables of a catalog that pyiceberg opens by these properties: REST, SQL, Hive, Glue, ….

    Its own configuration of catalogs (``PYICEBERG_CATALOG__…``, ``.pyiceberg.yaml``) is not looked at: by the
    name of a catalog that is configured there, its secrets would go to another server.

    :param properties: pyiceberg's, without their prefix.
    """

    def __init__(self, properties: dict[str, str]) -> None:
        super().__init__("")
        self._properties = properties

    def get_database(self, name: str) -> types.Database:
        """See :meth:`.roles.Reader.get_database`."""
        with self._asking(f"namespace {name}"):
            found = self._catalog.load_namespace_properties(self._namespace(name))
        return types.Database(
            name=name.lower(),
            description=found.get("comment"),
            locationUri=found.get("location"),
            parameters={},
        )

    def list_tables(self, database: str) -> list[str]:
        """See :meth:`.roles.Reader.list_tables`; names are in lower case, as Hive's are.

        :raises InvalidObjectError: two tables whose names Hive cannot tell apart.
        """
        try:
            found = self._tables(database)
            for names in found.values():
                _refuse_alike(database, names)
            with self._asking(f"namespace {database}"):
                self._name_nested(database, self._namespace(database))
            return sorted(found)
        except NoSuchObjectError:
            return []

    def get_table(self, database: str, table: str) -> types.Table:
        """See :meth:`.roles.Reader.get_table`.

        :raises InvalidObjectError: two tables whose names Hive cannot tell apart.
        """
        named = self._tables(database).get(table.lower())
        if named is None:
            raise NoSuchObjectError(f"Iceberg has no table {database}.{table}.")
        return self._entry(database, table, _refuse_alike(database, named))

    def get_tables(self, database: str, names: Sequence[str]) -> list[types.Table]:
        """See :meth:`.roles.Reader.get_tables`."""
        there = self._tables(database)
        named = [
            (name, _refuse_alike(database, there[name.lower()])) for name in names if name.lower() in there
        ]
        return [self._entry(database, name, one) for name, one in named]

    def _entry(self, database: str, table: str, named: tuple[str, ...]) -> types.Table:
        with self._asking(f"{database}.{table}"):
            return _entry(database, table, self._catalog.load_table(named))

    def _tables(self, database: str) -> dict[str, list[tuple[str, ...]]]:
        """Iceberg's names of a namespace's tables, by their names in lower case.

        :raises NoSuchObjectError: if there is no such namespace.
        """
        found: dict[str, list[tuple[str, ...]]] = {}
        with self._asking(f"namespace {database}"):
            for one in self._catalog.list_tables(self._namespace(database)):
                found.setdefault(str(one[-1]).lower(), []).append(tuple(map(str, one)))
        return found

    def _namespace(self, database: str) -> tuple[str, ...]:
        """Iceberg's name of a namespace, whose levels are parted by dots and which may have upper case."""
        found: tuple[str, ...] = ()
        for level in database.split("."):
            below = [str(one[-1]) for one in self._catalog.list_namespaces(found)]
            alike = [one for one in below if one.lower() == level.lower()]
            if level not in alike and len(alike) != 1:
                if alike:
                    raise InvalidObjectError(
                        f"Iceberg has namespaces {', '.join(sorted(alike))}, whose names are one to Hive.",
                        remedy="Rename one of them.",
                    )
                raise NoSuchObjectError(f"Iceberg has no namespace {database}.")
            found = (*found, level if level in alike else alike[0])
        return found

    def _name_nested(self, database: str, namespace: tuple[str, ...]) -> None:
        nested = sorted(".".join(map(str, one)) for one in self._catalog.list_namespaces(namespace))
        if nested:
            log.warning(
                "%s: tables of the nested namespaces %s are not among its tables; each can be a remote "
                "database of its own.",
                database,
                ", ".join(nested),
            )

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        """Translate errors; servers repeat in some of them what they were sent, a token for instance."""
        with _translated(what, hidden=_secrets_among(self._properties)):
            yield

    @cached_property
    def _catalog(self) -> Any:
        from pyiceberg.catalog import AVAILABLE_CATALOGS, CatalogType, infer_catalog_type

        from airflow_hive_federation.catalog.iceberg_rest import ConfinedRestCatalog

        with self._asking("the catalog"):
            properties = {key: value for key, value in self._properties.items() if key != "name"}
            name = self._properties.get("name", "remote")
            kind = properties.get("type")
            # Without a type, it is the scheme of the URI that says which.
            inferred: Any = dict(properties)
            found: Any = CatalogType(kind.lower()) if kind else infer_catalog_type(name, inferred)
            if found is CatalogType.REST:
                return ConfinedRestCatalog(name, **properties)
            return AVAILABLE_CATALOGS[found](name, properties)


def _refuse_alike(database: str, named: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the only one of the tables that have a name in lower case.

    :raises InvalidObjectError: if there are several.
    """
    if len(named) > 1:
        raise InvalidObjectError(
            f"Iceberg's namespace {database} has tables {' and '.join(one[-1] for one in named)}, whose "
            "names are one to Hive.",
            remedy="Rename one of them, or link the other tables one by one.",
        )
    return named[0]


def newest_metadata(path: str) -> str:
    """The newest metadata file of a table that has only a path.

    Writers number them: ``v3.metadata.json`` (``HadoopTableOperations``), ``00003-<uuid>.metadata.json`` (all
    catalogs). The hint that the former leave may be old or missing.

    :param path: the table's directory, or one of its metadata files, which stays itself.
    :raises NoSuchObjectError: if there is none.
    """
    if path.endswith(_METADATA):
        return path
    directory = f"{path.rstrip('/')}/metadata"
    numbered = [
        (int(found[1]), name) for name in list_directory(directory) if (found := _NUMBERED.fullmatch(name))
    ]
    if not numbered:
        raise NoSuchObjectError(
            f"There is no Iceberg table at {path}.", remedy=f"Check {PATH}: it is the table's directory."
        )
    return f"{directory}/{max(numbered)[1]}"


def _entry(database: str, name: str, table: Any) -> types.Table:
    """The entry that ``org.apache.iceberg.hive.HiveTableOperations`` would write."""
    from pyiceberg.catalog.hive import SchemaToHiveConverter
    from pyiceberg.schema import visit

    converter = SchemaToHiveConverter(hive2_compatible=False)
    columns = [
        types.FieldSchema(name=named, type=visit(field.field_type, converter), comment=field.doc)
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


def _column_names(fields: Sequence[Any]) -> list[str]:
    """Names as Hive keeps them; Iceberg's own if two of them are one to Hive, for whoever refuses them."""
    names = [str(field.name) for field in fields]
    lower = [name.lower() for name in names]
    return lower if len(set(lower)) == len(lower) else names


@contextmanager
def _translated(what: str, *, hidden: Sequence[str] = ()) -> Iterator[None]:
    from pyiceberg.exceptions import (
        AuthorizationExpiredError,
        BadRequestError,
        ForbiddenError,
        NoSuchNamespaceError,
        NoSuchTableError,
        OAuthError,
        RESTError,
        UnauthorizedError,
        ValidationError,
    )

    refusals = (UnauthorizedError, OAuthError, ForbiddenError, AuthorizationExpiredError, BadRequestError)
    cause: Exception
    made: HiveFederationError
    try:
        yield
        return
    except (NoSuchTableError, NoSuchNamespaceError, FileNotFoundError) as error:
        cause, made = error, NoSuchObjectError(f"Iceberg, {what}: {_shown(error, hidden)}")
    except (*refusals, ValidationError, ValueError, ImportError) as error:
        cause, made = (
            error,
            ConfigurationError(
                f"Iceberg, {what}: {_shown(error, hidden)}",
                remedy=f"Check {PATH}, or the properties {PREFIX}….",
            ),
        )
    except (RESTError, OSError) as error:
        cause, made = (
            error,
            MetastoreUnreachableError(
                f"Iceberg, {what}: {_shown(error, hidden)}", remedy="Look at the store."
            ),
        )
    # A traceback shows the cause, too.
    raise made from (cause if _shown(cause, hidden) == str(cause) else None)


def _shown(error: BaseException, hidden: Sequence[str]) -> str:
    text = str(error)
    for secret in hidden:
        text = text.replace(secret, HIDDEN)
    return text


def _secrets_among(properties: Mapping[str, str]) -> list[str]:
    """Values that are not shown, and halves of credentials: all but what says which catalog it is."""
    values = [value for name, value in properties.items() if name not in _SHOWN]
    return [
        one for value in values for one in (value, value.rpartition(":")[2]) if len(one) >= _SHORTEST_SECRET
    ]


def _open(opening: Opening) -> IcebergTableCatalog:
    try:
        import pyiceberg  # noqa: F401 - is it there?
    except ImportError as error:
        raise ConfigurationError(
            "Iceberg needs pyiceberg.", remedy="pip install 'airflow-hive-federation[iceberg]'."
        ) from error
    if PATH in opening.properties:
        return IcebergTableCatalog(opening.properties[PATH])
    given = {
        name.removeprefix(PREFIX): value
        for name, value in opening.properties.items()
        if name.startswith(PREFIX)
    }
    if CONNECTION in opening.properties:
        return IcebergCatalog(_by_connection(opening, given))
    _check_open(given)
    return IcebergCatalog(given)


def _by_connection(opening: Opening, given: dict[str, str]) -> dict[str, str]:
    """The properties of a connection, and those of the remote that the connection leaves to it."""
    connection_id = opening.properties[CONNECTION]
    found = dict(opening.connections.iceberg(connection_id))
    others = sorted(name for name in given if given[name] != found.get(name, given[name]))
    if "uri" in given and "uri" not in found:
        others.append("uri")
    if others:
        raise ConfigurationError(
            f"Remote {opening.remote} has its own {', '.join(f'{PREFIX}{name}' for name in others)} beside "
            f"connection {connection_id!r}, whose secrets would go there.",
            remedy="Leave it out: the connection has it. Another catalog needs a connection of its own.",
        )
    return {**given, **found}


def _check_open(given: dict[str, str]) -> None:
    """Refuse catalogs that take credentials from the worker's environment, and send them where the URI says.

    :raises ConfigurationError: a database server finds passwords there, and further kinds their keys.
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
