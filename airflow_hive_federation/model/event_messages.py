"""Parses the messages of Hive's notification events into :mod:`.events`.

Hive's ``DbNotificationListener`` writes them in two formats: ``gzip(json-2.0)`` (``GzipJSONMessageEncoder``:
Base64 of gzip of JSON, the default of Hive 4) and ``json-0.2`` (``JSONMessageEncoder``: the JSON itself). The
JSON is the same; tables and functions inside it are strings of Thrift's own JSON (:mod:`.thrift_json`), from
which this module takes names only: replication copies the *present* state of the source, and an event only
names the objects to compare.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import io
import sys
import zlib
from collections.abc import Callable, Mapping
from typing import Protocol, TypedDict

from airflow_hive_federation.model import bounded_json
from airflow_hive_federation.model.events import (
    AcidWritten,
    Compacted,
    ConstraintsChanged,
    DatabaseEvent,
    Event,
    FunctionEvent,
    Inserted,
    OtherEvent,
    PartitionsChanged,
    Reloaded,
    StatisticsChanged,
    TableAltered,
    TableCreated,
    TableDropped,
    TxnEnded,
    TxnsOpened,
    UnknownEvent,
    UnreadableEvent,
    WriteIdsAllocated,
)
from airflow_hive_federation.model.json_values import Fields, json_object, list_of, or_none, text
from airflow_hive_federation.model.kept_files import kept_files
from airflow_hive_federation.model.partitions import partition_name, unescape
from airflow_hive_federation.model.thrift_json import ThriftStruct

GZIP_FORMAT = "gzip(json-2.0)"
JSON_FORMAT = "json-0.2"
#: Bytes of an unpacked message, far above those of Hive: a few packed bytes may unpack to gigabytes.
_LONGEST_MESSAGE = 1 << 28


class RawEvent(Protocol):
    """The fields of a wire ``NotificationEvent``."""

    eventId: int | None
    eventType: str | None
    dbName: str | None
    tableName: str | None
    message: str | None
    messageFormat: str | None


class _HeadingFields(TypedDict):
    event_id: int
    event_type: str
    database: str


class _TableFields(_HeadingFields):
    table: str


def read_event(raw: RawEvent) -> Event:
    """Parse a wire ``NotificationEvent``; return an :class:`UnreadableEvent` if that fails."""
    parse = _PARSERS.get(_text(raw.eventType))
    heading: _HeadingFields = {
        "event_id": _number(raw.eventId),
        # Many events share few names, so that interning saves memory.
        "event_type": sys.intern(_text(raw.eventType)),
        "database": sys.intern(_text(raw.dbName).lower()),
    }
    if parse is None:
        return UnknownEvent(**heading)
    try:
        return parse(_Heading(raw, heading))
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        table = sys.intern(_text(raw.tableName).strip().lower())
        return UnreadableEvent(**heading, table=table, reason=f"{type(error).__name__}: {error}")


def _text(name: str | bytes | None) -> str:
    """Return a name of a heading as text; a name that is no UTF-8 arrives as bytes, and matches no object."""
    return name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else name or ""


def decode_message(message: str, message_format: str | None) -> Fields:
    """Return the fields of the JSON object in an event's message.

    :param message_format: ``messageFormat`` of the event.
    :raises ValueError: if the format is neither of the two, or the message does not have this format.
    """
    if message_format == GZIP_FORMAT:
        message = _unpacked(message)
    elif message_format not in {JSON_FORMAT, None, ""}:
        raise ValueError(f"unknown message format {message_format!r}")
    values = bounded_json.loads(message)
    if not isinstance(values, dict):
        raise ValueError("the message is no JSON object")
    return Fields(values)


def message_of(raw: RawEvent) -> Fields:
    """Return the fields of the JSON object in an event's message; see :func:`decode_message`."""
    return decode_message(raw.message or "", raw.messageFormat)


def partitions_of(message: Fields) -> list[dict[str, str]]:
    """Return the values of the partitions that a message lists, each by the names of its keys.

    ``JSONAddPartitionMessage``, ``JSONDropPartitionMessage`` and ``JSONAlterPartitionsMessage`` have a list.

    :raises ValueError: if the message has none.
    """
    return [_key_values(partition) for partition in message.needed("partitions", list_of(json_object))]


def changed_partitions(message: Fields) -> list[dict[str, str]]:
    """Return the same for a message that may have one partition, as ``JSONAlterPartitionMessage`` has.

    :raises ValueError: if the message names none.
    """
    if message.optional("partitions", bool, default=False):
        return partitions_of(message)
    return [message.needed("keyValues", _key_values)]


def _key_values(value: object) -> dict[str, str]:
    return {str(key): str(item) for key, item in json_object(value).items()}


def _number(value: object) -> int:
    """Read a whole number, which may be a text."""
    if not isinstance(value, int | str):
        raise ValueError(f"{value!r} is no whole number")
    return int(value)


def _unpacked(message: str) -> str:
    try:
        packed = io.BytesIO(base64.b64decode(message, validate=True))
        with gzip.GzipFile(fileobj=packed) as stream:
            unpacked = stream.read(_LONGEST_MESSAGE + 1)
    except (binascii.Error, OSError, EOFError, zlib.error) as error:
        raise ValueError(f"not Base64 of gzip ({error})") from error
    if len(unpacked) > _LONGEST_MESSAGE:
        raise ValueError(f"the message has more than {_LONGEST_MESSAGE} bytes")
    return unpacked.decode()


class _Heading:
    """The raw form of an event during parsing: its heading, and its message, decoded when needed."""

    def __init__(self, raw: RawEvent, heading: _HeadingFields) -> None:
        self._raw = raw
        self.heading = heading

    def message(self) -> Fields:
        return message_of(self._raw)

    def table(self, otherwise: str = "") -> _TableFields:
        name = _text(self._raw.tableName).strip() or otherwise
        if not name:
            raise ValueError("it names no table")
        return {**self.heading, "table": sys.intern(name.lower())}


def _table_altered(event: _Heading) -> Event:
    message = event.message()
    before = message.needed("tableObjBeforeJson", ThriftStruct.parse)
    return TableAltered(
        **event.table(),
        # Fields 1 and 2 of the IDL's Table are tableName and dbName.
        old_table=before.text(1).lower(),
        old_database=before.text(2).lower(),
        truncated=_is_true(message, "isTruncateOp"),
    )


def _is_true(message: Fields, name: str) -> bool:
    """Return whether a flag of a message is set; Hive writes flags as text."""
    return message.optional(name, str, default="").lower() == "true"


def _partitions_altered(event: _Heading) -> Event:
    message = event.message()
    named = _partition_names_or_none(message)
    truncated = _partition_names(message) if _is_true(message, "isTruncateOp") else ()
    return PartitionsChanged(**event.table(), named=named, truncated=truncated)


def _partition_altered(event: _Heading) -> Event:
    message = event.message()
    # Field 1 of the IDL's Partition is the list of its values.
    before, after = (
        message.needed(f"partitionObj{when}Json", ThriftStruct.parse).texts(1) for when in ("Before", "After")
    )
    keys = list(message.needed("keyValues", json_object))
    former = (partition_name(keys, before),)
    return PartitionsChanged(
        **event.table(),
        named=former if before == after else (*former, partition_name(keys, after)),
        gone=() if before == after else former,
        truncated=former if _is_true(message, "isTruncateOp") else (),
    )


def _partitions_dropped(event: _Heading) -> Event:
    names = _partition_names(event.message())
    return PartitionsChanged(**event.table(), named=names, gone=names)


def _partition_names(message: Fields) -> tuple[str, ...]:
    partitions = partitions_of(message)
    return tuple(partition_name(list(partition), list(partition.values())) for partition in partitions)


def _partition_names_or_none(message: Fields) -> tuple[str, ...] | None:
    has_names = message.optional("partitions", lambda value: value is not None, default=False)
    return _partition_names(message) if has_names else None


def _kept_files(fields: Fields) -> tuple[tuple[str, str], ...]:
    files = fields.optional("files", or_none(list_of(text)), default=None)
    return kept_files(files or ())


def _inserted(event: _Heading) -> Event:
    message = event.message()
    return Inserted(
        **event.table(),
        kept=_kept_files(message),
        overwritten=_is_true(message, "replace") and not message.optional("ptnObjJson", bool, default=False),
    )


def _foreign_key(event: _Heading) -> Event:
    # The event has the name of the table that the key refers to; the key belongs to the other table.
    (first, *_) = event.message().needed("foreignKeyListJson", list_of(text))
    key = ThriftStruct.parse(first)
    # Fields 4 and 5 of the IDL's SQLForeignKey are fktable_db and fktable_name.
    heading: _HeadingFields = {**event.heading, "database": key.text(4).lower()}
    return ConstraintsChanged(**heading, table=key.text(5).lower())


def _function(event: _Heading) -> Event:
    message = event.message()
    name = message.optional("functionName", or_none(text), default=None)
    name = name or message.needed("functionObjJson", ThriftStruct.parse).text(1)
    return FunctionEvent(**event.heading, function=name.lower())


def _txns_opened(event: _Heading) -> Event:
    message = event.message()
    ids = message.optional("txnIds", or_none(list_of(_number)), default=None)
    ids = ids or tuple(message.needed(name, _number) for name in ("fromTxnId", "toTxnId"))
    return TxnsOpened(**event.heading, first=min(ids), last=max(ids))


def _txn_ended(*, committed: bool) -> Callable[[_Heading], Event]:
    def parse(event: _Heading) -> Event:
        txn_id = event.message().needed("txnid", _number)
        return TxnEnded(**event.heading, txn_id=txn_id, committed=committed)

    return parse


def _write_ids(event: _Heading) -> Event:
    message = event.message()
    txn_ids, write_ids = (message.needed(name, list_of(_number)) for name in ("txnIdList", "writeIdList"))
    return WriteIdsAllocated(
        # Hive 3.1 names the table in the message only (``DbNotificationListener.onAllocWriteId``).
        **event.table(otherwise=message.optional("tableName", or_none(text), default=None) or ""),
        write_ids=tuple(zip(txn_ids, write_ids, strict=True)),
    )


def _acid_written(event: _Heading) -> Event:
    message = event.message()
    txn_id, write_id = (message.needed(name, _number) for name in ("txnid", "writeId"))
    return AcidWritten(**event.table(), txn_id=txn_id, write_id=write_id)


def _compacted(event: _Heading) -> Event:
    message = event.message()
    return Compacted(
        **event.table(),
        partition=_of_queue(message.optional("partName", or_none(text), default=None) or ""),
        rebalanced=message.optional("type", or_none(text), default=None) == "REBALANCE",
    )


def _of_queue(name: str) -> str:
    """Return the name of a partition as tables have it; a queue has it as it was requested."""
    parts = [part.partition("=") for part in name.split("/") if part]
    return partition_name(
        [unescape(key).lower() for key, _, _ in parts], [unescape(value) for *_, value in parts]
    )


def _of_table(kind: Callable[..., Event]) -> Callable[[_Heading], Event]:
    return lambda event: kind(**event.table())


def _with_files(kind: Callable[..., Event]) -> Callable[[_Heading], Event]:
    return lambda event: kind(**event.table(), kept=_kept_files(event.message()))


def _partitions_added(event: _Heading) -> Event:
    message = event.message()
    added = message.optional("partitionFiles", or_none(list_of(Fields)), default=None) or ()
    return PartitionsChanged(
        **event.table(),
        named=_partition_names_or_none(message),
        kept=tuple(file for partition in added for file in _kept_files(partition)),
    )


def _partition_statistics(event: _Heading) -> Event:
    message = event.message()
    values = message.optional("partVals", or_none(list_of(text)), default=None)
    if not values or not message.optional("tableObjJson", bool, default=False):
        return StatisticsChanged(**event.table())
    # Field 8 of the IDL's Table is the list of its partition keys.
    keys = [key.text(1) for key in message.needed("tableObjJson", ThriftStruct.parse).structs(8)]
    return StatisticsChanged(**event.table(), named=(partition_name(keys, values),))


def _plain(kind: Callable[..., Event]) -> Callable[[_Heading], Event]:
    return lambda event: kind(**event.heading)


#: ``EventMessage.EventType`` of Hive 4.2 → the function that parses the event.
_PARSERS: Mapping[str, Callable[[_Heading], Event]] = {
    **dict.fromkeys(("CREATE_DATABASE", "ALTER_DATABASE", "DROP_DATABASE"), _plain(DatabaseEvent)),
    "CREATE_TABLE": _with_files(TableCreated),
    "DROP_TABLE": _of_table(TableDropped),
    "ALTER_TABLE": _table_altered,
    "ADD_PARTITION": _partitions_added,
    "ALTER_PARTITIONS": _partitions_altered,
    "ALTER_PARTITION": _partition_altered,
    "DROP_PARTITION": _partitions_dropped,
    "INSERT": _inserted,
    **dict.fromkeys(("CREATE_FUNCTION", "DROP_FUNCTION"), _function),
    **dict.fromkeys(
        (
            "ADD_PRIMARYKEY",
            "ADD_UNIQUECONSTRAINT",
            "ADD_NOTNULLCONSTRAINT",
            "ADD_DEFAULTCONSTRAINT",
            "ADD_CHECKCONSTRAINT",
            "DROP_CONSTRAINT",
        ),
        _of_table(ConstraintsChanged),
    ),
    "ADD_FOREIGNKEY": _foreign_key,
    **dict.fromkeys(
        ("UPDATE_TBL_COL_STAT_EVENT", "DELETE_TBL_COL_STAT_EVENT"),
        lambda event: StatisticsChanged(**event.table(), named=()),
    ),
    "UPDATE_PART_COL_STAT_EVENT": _partition_statistics,
    "DELETE_PART_COL_STAT_EVENT": _of_table(StatisticsChanged),
    "OPEN_TXN": _txns_opened,
    "COMMIT_TXN": _txn_ended(committed=True),
    "ABORT_TXN": _txn_ended(committed=False),
    "ALLOC_WRITE_ID_EVENT": _write_ids,
    **dict.fromkeys(("ACID_WRITE", "BATCH_ACID_WRITE"), _acid_written),
    "COMMIT_COMPACTION_EVENT": _compacted,
    "RELOAD": _of_table(Reloaded),
    **dict.fromkeys(
        (
            "CREATE_CATALOG",
            "ALTER_CATALOG",
            "DROP_CATALOG",
            "CREATE_ISCHEMA",
            "ALTER_ISCHEMA",
            "DROP_ISCHEMA",
            "ADD_SCHEMA_VERSION",
            "ALTER_SCHEMA_VERSION",
            "DROP_SCHEMA_VERSION",
            "CREATE_DATACONNECTOR",
            "ALTER_DATACONNECTOR",
            "DROP_DATACONNECTOR",
        ),
        _plain(OtherEvent),
    ),
}
