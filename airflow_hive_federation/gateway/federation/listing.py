"""Questions to all metastores, and one answer of theirs, under local names. Pure."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_hive_federation.gateway.federation.fan_out import Question
from airflow_hive_federation.gateway.federation.owners import Owners, Place, matches

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Part:
    """What another metastore is asked for a list, and how its answer becomes a part of the list.

    :param question: what it is asked.
    :param elements: makes elements of the list, under local names, of what it returns.
    """

    question: Question
    elements: Callable[[Any], list[Any]]


@dataclass(frozen=True)
class Listing:
    """How one list is made of several metastores' answers.

    :param read: takes the elements out of the primary metastore's answer.
    :param write: makes the answer of elements.
    :param key: the name by which elements are ordered, and the database that they belong to.
    """

    read: Callable[[Any], list[Any]]
    write: Callable[[list[Any]], Any]
    key: Callable[[Any], tuple[str, str]]


def listing_of(method: str, success: Any) -> Listing:
    """Return how the list of a method is made.

    :param success: what the primary metastore returned.
    """

    def refilled(name: str) -> Callable[[list[Any]], Any]:
        def write(elements: list[Any]) -> Any:
            setattr(success, name, elements)
            return success

        return write

    if method == "get_databases_req":
        return Listing(
            lambda one: one.databases or [], refilled("databases"), lambda one: (one.name, one.name)
        )
    if method == "get_all_functions":
        return Listing(
            lambda one: one.functions or [],
            refilled("functions"),
            lambda one: (f"{one.dbName}.{one.functionName}", one.dbName),
        )
    if method == "get_table_meta":
        return Listing(list, list, lambda one: (f"{one.dbName}.{one.tableName}", one.dbName))
    if method in {"get_all_databases", "get_databases"}:
        return Listing(list, list, lambda one: (one, one))
    if method == "get_tables_ext":
        return Listing(list, list, lambda one: (one.tblName, ""))
    return Listing(list, list, lambda one: (one, ""))


def merged(listing: Listing, owners: Owners, success: Any, others: Iterable[Any]) -> Any:
    """Make one answer.

    A database of the primary metastore whose name is a remote's is left out: calls that name it go to the
    remote.

    :param success: what the primary metastore returned.
    :param others: elements of the other metastores, under local names.
    """
    own = []
    for one in listing.read(success):
        database = listing.key(one)[1].lower()
        if database and owners.is_configured(database, None):
            log.warning(
                "database %s of metastore %s is hidden by the remote of that name", database, owners.primary
            )
        else:
            own.append(one)
    found = {listing.key(one)[0].lower(): one for one in own}
    for one in others:
        found[listing.key(one)[0].lower()] = one
    return listing.write([found[key] for key in sorted(found)])


def part_of_all(method: str, arguments: Any, owners: Owners, owner: str) -> Part | None:
    """Return the part of another metastore in a list of everything; ``None`` if it has none.

    :param arguments: of the call.
    """
    whole = bool(owners.mapped_databases(owner)) or owners.prefix_of(owner) is not None
    if method == "get_table_meta":
        return _tables_of_all(arguments, owners, owner)
    if not whole:
        return None
    if method == "get_all_functions":
        return Part(Question(method, {}), lambda success: list(_functions(success, owners, owner)))
    if method == "get_databases_req":
        request = arguments.request
        asked = copy.copy(request)
        asked.pattern = None
        return Part(
            Question(method, {"request": asked}),
            lambda success: list(_databases(success, request.pattern, owners, owner)),
        )
    pattern = arguments.pattern if method == "get_databases" else None
    return Part(
        Question("get_all_databases", {}),
        lambda success: [
            local
            for names in owners.local_names(owner, [one.lower() for one in success]).values()
            for local in names
            if matches(pattern, local)
        ],
    )


def parts_of_database(
    method: str, arguments: Any, database: str, owners: Owners, owner: str
) -> Iterator[Part]:
    """Yield another metastore's parts in a list of a local database: its single tables with a name there.

    :param arguments: of the call.
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
                question, lambda success: _found(wanted, success, lambda one: _key(one.dbName, one.tableName))
            )
        return
    # Each of these two is asked of one database.
    for there in sorted({place.database for place in wanted.values()}):
        of_it = {name: place for name, place in wanted.items() if place.database == there}
        yield _asked_there(method, arguments, there, of_it)


def _asked_there(method: str, arguments: Any, database: str, wanted: Mapping[str, Place]) -> Part:
    if method == "get_table_names_by_filter":
        asked = {"dbname": database, "filter": arguments.filter, "max_tables": -1}
        return Part(
            Question(method, asked), lambda success: _found(wanted, success, lambda one: _key(database, one))
        )
    names = "|".join(sorted(place.table or "" for place in wanted.values()))
    request = _with(arguments.req, database=database, tableNamePattern=names, limit=-1)

    def elements(success: Any) -> list[Any]:
        infos = {one.tblName.lower(): one for one in success}
        return [
            _with(infos[place.table], tblName=name) for name, place in wanted.items() if place.table in infos
        ]

    return Part(Question(method, {"req": request}), elements)


def limit_of(method: str, arguments: Any) -> int | None:
    """Return the number of elements that the caller of a list wants at most; ``None`` if all."""
    most: int | None = None
    if method == "get_tables_ext":
        most = arguments.req.limit
    elif method == "get_table_names_by_filter":
        most = arguments.max_tables
    return most if most is not None and most >= 0 else None


def _found(wanted: Mapping[str, Place], success: Any, key: Callable[[Any], tuple[str, str]]) -> list[str]:
    """Local names of what another metastore has found."""
    found = {key(one) for one in success}
    return [name for name, place in wanted.items() if (place.database, place.table) in found]


def _key(database: str, table: str) -> tuple[str, str]:
    return database.lower(), table.lower()


def _tables_of_all(arguments: Any, owners: Owners, owner: str) -> Part | None:
    databases, tables = arguments.db_patterns, arguments.tbl_patterns
    mapped = [there for local, there in owners.mapped_databases(owner).items() if matches(databases, local)]
    single = {
        name: place
        for name, place in owners.single_tables(owner).items()
        if matches(databases, name[0]) and matches(tables, name[1])
    }
    prefixed = owners.prefix_of(owner) is not None
    if not (mapped or single or prefixed):
        return None
    there = "|".join(sorted({*mapped, *(one.database for one in single.values())}))
    question = Question(
        "get_table_meta",
        {
            "db_patterns": "*" if prefixed else there,
            # Single tables may have other names there.
            "tbl_patterns": "*" if single else tables,
            "tbl_types": arguments.tbl_types,
        },
    )

    def elements(success: Any) -> list[Any]:
        found = []
        for meta in success:
            there = meta.dbName.lower()
            for local in owners.local_names(owner, [there]).get(there, ()):
                if matches(databases, local) and matches(tables, meta.tableName):
                    found.append(_with(meta, dbName=local))
            for (local, table), place in single.items():
                if _is(meta, place):
                    found.append(_with(meta, dbName=local, tableName=table))
        return found

    return Part(question, elements)


def _metas(places: Iterable[Place], kinds: list[str] | None) -> Question:
    there = list(places)
    return Question(
        "get_table_meta",
        {
            "db_patterns": "|".join(sorted({one.database for one in there})),
            "tbl_patterns": "|".join(sorted({one.table or "" for one in there})),
            "tbl_types": kinds or [],
        },
    )


def _is(meta: Any, place: Place) -> bool:
    return (meta.dbName.lower(), meta.tableName.lower()) == (place.database, place.table)


def _functions(success: Any, owners: Owners, owner: str) -> Iterator[Any]:
    for function in success.functions or []:
        there = function.dbName.lower()
        for local in owners.local_names(owner, [there]).get(there, ()):
            yield _with(function, dbName=local)


def _databases(success: Any, pattern: str | None, owners: Owners, owner: str) -> Iterator[Any]:
    for database in success.databases or []:
        there = database.name.lower()
        for local in owners.local_names(owner, [there]).get(there, ()):
            if matches(pattern, local):
                yield _with(database, name=local)


def _with(struct: Any, **fields: Any) -> Any:
    made = copy.copy(struct)
    for name, value in fields.items():
        setattr(made, name, value)
    return made
