"""The service of streams: what no method of the interface definition has."""

from __future__ import annotations

from google.protobuf import descriptor_pb2 as pb

from airflow_hive_federation.gateway.services import layout

F = pb.FieldDescriptorProto
TEXT, LONG, INT, BOOL, BYTES = F.TYPE_STRING, F.TYPE_INT64, F.TYPE_UINT32, F.TYPE_BOOL, F.TYPE_BYTES

MESSAGES: dict[str, list[tuple[int, str, object, bool]]] = {
    "PartitionsQuery": [
        (1, "catalog", TEXT, False),
        (2, "database", TEXT, False),
        (3, "table", TEXT, False),
        (4, "names", TEXT, True),
        (5, "filter", TEXT, False),
        (6, "chunk_bytes", INT, False),
        (7, "as_thrift", BOOL, False),
    ],
    "PartitionChunk": [(1, "partitions", "Partition", True), (15, "thrift", BYTES, True)],
    "TablesQuery": [
        (1, "catalog", TEXT, False),
        (2, "database", TEXT, False),
        (3, "pattern", TEXT, False),
        (4, "names", TEXT, True),
        (5, "names_only", BOOL, False),
        (6, "chunk_bytes", INT, False),
        (7, "as_thrift", BOOL, False),
    ],
    "TableChunk": [
        (1, "tables", "Table", True),
        (2, "names", TEXT, True),
        (15, "thrift", BYTES, True),
    ],
    "EventsQuery": [
        (1, "after_event_id", LONG, False),
        (2, "databases", TEXT, True),
        (3, "event_types", TEXT, True),
        (4, "skip_gaps", BOOL, False),
        (6, "chunk_bytes", INT, False),
        (7, "as_thrift", BOOL, False),
    ],
    "EventGap": [(1, "first_missing", LONG, False), (2, "last_missing", LONG, False)],
    "EventChunk": [
        (1, "events", "NotificationEvent", True),
        (2, "last_event_id", LONG, False),
        (3, "gaps", "EventGap", True),
        (15, "thrift", BYTES, True),
    ],
}
METHODS = {
    "stream_partitions": ("PartitionsQuery", "PartitionChunk"),
    "stream_tables": ("TablesQuery", "TableChunk"),
    "stream_events": ("EventsQuery", "EventChunk"),
    "follow_events": ("EventsQuery", "EventChunk"),
}


def add(file: pb.FileDescriptorProto) -> None:
    """Add the service and its messages."""
    for name, lines in MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, field, kind, repeated in lines:
            one = message.field.add(name=field, number=number, json_name=_json_name(field))
            one.label = F.LABEL_REPEATED if repeated else F.LABEL_OPTIONAL
            if isinstance(kind, str):
                one.type, one.type_name = F.TYPE_MESSAGE, f".{layout.PACKAGE}.{kind}"
            else:
                one.type = kind  # type: ignore[assignment]
                if not repeated:
                    one.proto3_optional = True
                    one.oneof_index = len(message.oneof_decl)
                    message.oneof_decl.add(name=f"_{field}")
    service = file.service.add(name=layout.STREAMS.rpartition(".")[2])
    for name, (query, chunk) in METHODS.items():
        service.method.add(
            name=name,
            input_type=f".{layout.PACKAGE}.{query}",
            output_type=f".{layout.PACKAGE}.{chunk}",
            server_streaming=True,
        )


def _json_name(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part.capitalize() for part in others)
