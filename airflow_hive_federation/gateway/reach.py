"""Refuses calls that reach objects beyond the databases that they name.

Rules, allow-lists and routes see the names in a call. Hive takes some of these names as patterns, passes over
others, and finds some objects by their ids alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from airflow_hive_federation.errors import GatewayError
from airflow_hive_federation.gateway.handler import Status, refused
from airflow_hive_federation.gateway.messages import read_head
from airflow_hive_federation.gateway.names import Reference, catalogs
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.struct import Struct
from airflow_hive_federation.metastore.wire import from_bytes

#: Methods whose database Hive takes as a regular expression (``ObjectStore.getTableObjectsByName``).
BY_PATTERN = frozenset({"get_table_objects_by_name", "get_table_objects_by_name_req"})
#: Methods that name objects of privileges (``HiveObjectRef``).
OF_PRIVILEGES = frozenset(
    {
        *("get_privilege_set", "grant_privileges", "grant_revoke_privileges", "list_privileges"),
        *("refresh_privileges", "revoke_privileges"),
    }
)
#: Methods that find a compaction by its id (``CompactionTxnHandler``), whatever table they name.
BY_ID = frozenset({"mark_cleaned", "mark_compacted", "mark_failed", "mark_refused", "update_compactor_state"})
#: Methods that create a database, with the fields of their request and of its data connector. The tables of a
#: connector have its password among their parameters (``AbstractJDBCConnectorProvider.getTable``). No other
#: call gives a database a connector (``ObjectStore.alterDatabase``).
OF_CONNECTORS = {
    "create_database": ("database", "connector_name"),
    "create_database_req": ("createDatabaseRequest", "dataConnectorName"),
}
#: Answers that the gateway filters if the call restricts them to no object.
_FILTERED = "list_privileges"
#: Counts the events of all databases if the database is ``*`` (``ObjectStore.getNotificationEventsCount``).
_COUNT = "get_notification_events_count"
#: Reads the definition of a catalog, and nothing in it.
_OF_CATALOG = "get_catalog"
#: Names whose characters all stand for themselves in a regular expression. Hive 4 has other names, too.
_PLAIN = re.compile(r"[\w -]+")
_IN_DATABASES = frozenset(
    {types.HiveObjectType.TABLE, types.HiveObjectType.PARTITION, types.HiveObjectType.COLUMN}
)
_IN_NO_DATABASE = frozenset({types.HiveObjectType.GLOBAL, types.HiveObjectType.DATACONNECTOR})


def check_names(method: str, named: Sequence[Reference]) -> None:
    """Refuse a pattern, or no name, where a method has to name a database and Hive accepts a pattern.

    :raises GatewayError: the call has such a pattern.
    """
    if method not in BY_PATTERN:
        return
    patterns = [reference.database for reference in named if not _PLAIN.fullmatch(reference.database)]
    if patterns or not named:
        name = patterns[0] if patterns else ""
        raise refused(
            Status.INVALID,
            f"{method}: Hive takes the name of the database, {name!r}, as a pattern of several databases.",
            remedy="Make a call for each database; read tables of a database whose own name has such "
            "characters one by one (get_table_req).",
        )


def check_objects(method: str, message: bytes, named: Sequence[Reference], *, is_filtered: bool) -> None:
    """Refuse a call about objects that belong to none of the databases that it names.

    :param is_filtered: the gateway leaves out the other databases' privileges from lists of privileges.
    :raises GatewayError: the call is about such objects.
    :raises WireFormatError: the call is malformed.
    """
    if method in BY_ID:
        raise _beyond(method, "Hive finds a compaction by its id, whatever table the call names")
    if method == _COUNT and any(reference.database == "*" for reference in named):
        raise _beyond(method, "Hive counts the events of all databases for *")
    if method in OF_CONNECTORS and _has_connector(method, message):
        raise _beyond(
            method,
            "Hive shows the password of a data connector with the tables of its databases (type REMOTE)",
            instead="Create a database without a connector",
        )
    if method in OF_PRIVILEGES:
        arguments = _arguments(method, message)
        for place in _objects(arguments):
            if not _is_in_database(place, any_type=is_filtered and method == _FILTERED):
                raise _beyond(method, "a privilege is of no database, or of a table without a name")


def check_catalogs(method: str, message: bytes, serves: Callable[[str], bool]) -> None:
    """Refuse a call about another catalog: rules name databases of the metastore's own one.

    :param serves: returns whether a catalog is the metastore's own, or the name of a cluster.
    :raises GatewayError: the call is about another catalog.
    :raises MalformedMessage: the call is malformed.
    """
    if method == _OF_CATALOG:
        return
    for name in catalogs(message, read_head(message).body, message_types(method)[0]):
        if not serves(name.name):
            raise refused(
                Status.DENIED,
                f"{method}: the call names the catalog {name.name!r}, and rules about some databases concern "
                "the metastore's own catalog only.",
                remedy="Ask the operator of the gateway for a rule about all databases, or for a gateway "
                "whose [upstream] has that catalog.",
            )


def _arguments(method: str, message: bytes) -> Struct:
    return from_bytes(message_types(method)[0], message[read_head(message).body :])


def _has_connector(method: str, message: bytes) -> bool:
    request, connector = OF_CONNECTORS[method]
    database = _arguments(method, message).set_fields().get(request)
    fields = database.set_fields() if isinstance(database, Struct) else {}
    native = fields.get("type") in {None, types.DatabaseType.NATIVE}
    return bool(fields.get(connector)) or not native


def _is_in_database(place: types.HiveObjectRef, *, any_type: bool) -> bool:
    # Hive takes a type that it does not know for none, and passes over the database then.
    if any_type:
        return place.objectType not in _IN_NO_DATABASE
    if place.objectType == types.HiveObjectType.DATABASE:
        return bool(place.dbName)
    return place.objectType in _IN_DATABASES and bool(place.dbName and place.objectName)


def _objects(value: object) -> Iterator[types.HiveObjectRef]:
    if isinstance(value, types.HiveObjectRef):
        yield value
    elif isinstance(value, Struct):
        for item in value.set_fields().values():
            yield from _objects(item)
    elif isinstance(value, list):
        for item in value:
            yield from _objects(item)


def _beyond(method: str, reason: str, instead: str = "Name databases or tables") -> GatewayError:
    return refused(
        Status.DENIED,
        f"{method}: {reason}, and the call may concern some databases only.",
        remedy=f"{instead}, or ask the operator of the gateway for a rule about all databases.",
    )
