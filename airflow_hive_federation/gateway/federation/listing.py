"""Makes the questions for a list of several metastores, and merges the answers under local names; no I/O."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from airflow_hive_federation.gateway.database_patterns import matches
from airflow_hive_federation.gateway.federation.fan_out import Question
from airflow_hive_federation.gateway.federation.owners import OwnedName, Owners
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.struct import Struct

log = logging.getLogger(__name__)


S = TypeVar("S", bound=Struct)


@dataclass(frozen=True)
class Part:
    """The part of a list that another metastore contributes.

    :param question: the call to the other metastore.
    :param elements: turns the return value of the question's method into elements of the list, under local
        names.
    """

    question: Question
    elements: Callable[[Any], Iterable[object]]


@dataclass(frozen=True)
class Listing:
    """The place of a list in a method's return value, and the order of its elements.

    :param key: returns the name that orders an element, and the database that the element belongs to.
    :param field: the field that contains the list; ``None`` if the return value is the list.
    """

    key: Callable[[Any], tuple[str, str]]
    field: str | None = None

    def read(self, success: Any) -> Iterable[object]:
        """Return the elements of a return value."""
        return success if self.field is None else getattr(success, self.field) or ()


_BY_NAME = Listing(lambda name: (name, ""))
_DATABASE_NAMES = Listing(lambda database: (database, database))
_LISTINGS = {
    "get_databases_req": Listing(lambda database: (database.name, database.name), "databases"),
    "get_all_functions": Listing(
        lambda function: (f"{function.dbName}.{function.functionName}", function.dbName), "functions"
    ),
    "get_table_meta": Listing(lambda meta: (f"{meta.dbName}.{meta.tableName}", meta.dbName)),
    "get_all_databases": _DATABASE_NAMES,
    "get_databases": _DATABASE_NAMES,
    "get_tables_ext": Listing(lambda info: (info.tblName, "")),
}


def merged(
    method: str, owners: Owners, success: object, others: Iterable[object], limit: int | None
) -> object:
    """Merge the elements of all metastores into one answer.

    A database of the primary metastore is left out if a remote has the same local name, since calls with this
    name go to the remote.

    :param success: the primary metastore's return value.
    :param others: elements of the other metastores, under local names.
    :param limit: the most elements of the answer, see :func:`limit_of`.
    """
    listing = _LISTINGS.get(method, _BY_NAME)
    own = []
    for element in listing.read(success):
        database = listing.key(element)[1].lower()
        if database and owners.is_configured(database, None):
            log.warning(
                "database %s of metastore %s is hidden by the remote of that name", database, owners.primary
            )
        else:
            own.append(element)
    by_name = {listing.key(element)[0].lower(): element for element in own}
    for element in others:
        by_name[listing.key(element)[0].lower()] = element
    elements = [by_name[key] for key in sorted(by_name)][:limit]
    if listing.field is None:
        return elements
    setattr(success, listing.field, elements)
    return success


def part_of_all(method: str, arguments: Any, owners: Owners, owner: str) -> Part | None:
    """Return another metastore's part of a list over all databases; ``None`` if it has no part.

    :param arguments: arguments of the call.
    """
    whole = bool(owners.mapped_databases(owner)) or owners.prefix_of(owner) is not None
    if method == "get_table_meta":
        return _tables_of_all(arguments, owners, owner)
    if not whole:
        return None
    if method == "get_all_functions":
        return Part(Question(method, {}), lambda success: _functions(success, owners, owner))
    if method == "get_databases_req":
        request = arguments.request
        unfiltered = copy.copy(request)
        unfiltered.pattern = None
        return Part(
            Question(method, {"request": unfiltered}),
            lambda success: _databases(success, request.pattern, owners, owner),
        )
    pattern = arguments.pattern if method == "get_databases" else None
    return Part(
        Question("get_all_databases", {}),
        lambda success: [
            local
            for names in owners.local_names(owner, [database.lower() for database in success]).values()
            for local in names
            if matches(pattern, local)
        ],
    )


def parts_of_database(
    method: str, arguments: object, database: str, owners: Owners, owner: str
) -> Iterator[Part]:
    """Yield another metastore's parts of a list of a local database: its single tables with a name in it.

    :param arguments: arguments of the call.
    """
    request = getattr(arguments, "req", None)
    pattern = getattr(arguments, "pattern", None) if request is None else request.tableNamePattern
    wanted = {
        name[1]: place
        for name, place in owners.single_tables(owner).items()
        if name[0] == database and matches(pattern, name[1])
    }
    if method not in {"get_tables_ext", "get_table_names_by_filter"}:
        if wanted:
            kind = getattr(arguments, "tableType", None)
            question = _metas(wanted.values(), [kind] if kind else None)
            yield Part(
                question,
                lambda success: _found(wanted, success, lambda meta: _key(meta.dbName, meta.tableName)),
            )
        return
    # A call of either of these two methods is about one database only.
    for remote_database in sorted({place.database for place in wanted.values()}):
        remote_tables = {name: place for name, place in wanted.items() if place.database == remote_database}
        yield _asked_there(method, arguments, remote_database, remote_tables)


def _asked_there(method: str, arguments: Any, database: str, wanted: Mapping[str, OwnedName]) -> Part:
    if method == "get_table_names_by_filter":
        values = {"dbname": database, "filter": arguments.filter, "max_tables": -1}
        return Part(
            Question(method, values),
            lambda success: _found(wanted, success, lambda table: _key(database, table)),
        )
    names = "|".join(sorted(place.table or "" for place in wanted.values()))
    request = _with(arguments.req, database=database, tableNamePattern=names, limit=-1)

    def elements(success: Iterable[types.ExtendedTableInfo]) -> list[object]:
        infos = {str(info.tblName).lower(): info for info in success}
        return [
            _with(infos[place.table], tblName=name) for name, place in wanted.items() if place.table in infos
        ]

    return Part(Question(method, {"req": request}), elements)


def limit_of(method: str, arguments: Any) -> int | None:
    """Return the caller's limit on the number of elements in a list; ``None`` if there is no limit."""
    limit: int | None = None
    if method == "get_tables_ext":
        limit = arguments.req.limit
    elif method == "get_table_names_by_filter":
        limit = arguments.max_tables
    return limit if limit is not None and limit >= 0 else None


def _found(
    wanted: Mapping[str, OwnedName], success: Iterable[object], key: Callable[[Any], tuple[str, str]]
) -> list[str]:
    """Return the local names of the wanted tables that another metastore has returned."""
    returned = {key(element) for element in success}
    return [name for name, place in wanted.items() if (place.database, place.table) in returned]


def _key(database: str, table: str) -> tuple[str, str]:
    return database.lower(), table.lower()


def _tables_of_all(arguments: Any, owners: Owners, owner: str) -> Part | None:
    databases, tables = arguments.db_patterns, arguments.tbl_patterns
    mapped = [
        remote_name
        for local, remote_name in owners.mapped_databases(owner).items()
        if matches(databases, local)
    ]
    single = {
        name: place
        for name, place in owners.single_tables(owner).items()
        if matches(databases, name[0]) and matches(tables, name[1])
    }
    prefixed = owners.prefix_of(owner) is not None
    if not (mapped or single or prefixed):
        return None
    database_pattern = "|".join(sorted({*mapped, *(remote.database for remote in single.values())}))
    question = Question(
        "get_table_meta",
        {
            "db_patterns": "*" if prefixed else database_pattern,
            # A single table may have another name at its owner than its local name.
            "tbl_patterns": "*" if single else tables,
            "tbl_types": arguments.tbl_types,
        },
    )

    def elements(success: Iterable[types.TableMeta]) -> list[object]:
        metas: list[object] = []
        for meta in success:
            remote_name, remote_table = _key(str(meta.dbName), str(meta.tableName))
            for local in owners.local_names(owner, [remote_name]).get(remote_name, ()):
                if matches(databases, local) and matches(tables, str(meta.tableName)):
                    metas.append(_with(meta, dbName=local))
            for (local, table), place in single.items():
                if (remote_name, remote_table) == (place.database, place.table):
                    metas.append(_with(meta, dbName=local, tableName=table))
        return metas

    return Part(question, elements)


def _metas(places: Iterable[OwnedName], kinds: list[str] | None) -> Question:
    remotes = list(places)
    return Question(
        "get_table_meta",
        {
            "db_patterns": "|".join(sorted({remote.database for remote in remotes})),
            "tbl_patterns": "|".join(sorted({remote.table or "" for remote in remotes})),
            "tbl_types": kinds or [],
        },
    )


def _functions(
    success: types.GetAllFunctionsResponse, owners: Owners, owner: str
) -> Iterator[types.Function]:
    for function in success.functions or []:
        remote_name = str(function.dbName).lower()
        for local in owners.local_names(owner, [remote_name]).get(remote_name, ()):
            yield _with(function, dbName=local)


def _databases(
    success: types.GetDatabaseObjectsResponse, pattern: str | None, owners: Owners, owner: str
) -> Iterator[types.Database]:
    for database in success.databases or []:
        remote_name = str(database.name).lower()
        for local in owners.local_names(owner, [remote_name]).get(remote_name, ()):
            if matches(pattern, local):
                yield _with(database, name=local)


def _with(struct: S, **fields: object) -> S:
    changed = copy.copy(struct)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed
