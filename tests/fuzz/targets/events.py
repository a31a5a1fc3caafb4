"""Notification events: any message, in both formats, makes an event, if need be one that cannot be read."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

from airflow_hive_federation.metastore.idl.types import NotificationEvent
from airflow_hive_federation.model import events
from airflow_hive_federation.model.event_messages import GZIP_FORMAT, JSON_FORMAT, read_event

_GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "events.json").read_text(encoding="utf-8"))
_TYPES = sorted({event["eventType"] for event in _GOLDEN})
ALLOWED = ()
TRACED = ("airflow_hive_federation.model.event_messages", "airflow_hive_federation.model.thrift_json")
INPUTS = 1500
SEEDS = [
    bytes([_TYPES.index(event["eventType"])]) + event["message"].encode()
    for event in {event["eventType"]: event for event in _GOLDEN}.values()
]
TOKENS = [*b'{}[]":,\\', b"null", b"1e999", b"NaN", b"-1", b'{"', b'":[', b"\\u0000", b"[[[[", b'{"a":{"a":']
TOKENS = [bytes([token]) if isinstance(token, int) else token for token in TOKENS]


def run(data: bytes) -> None:
    """Read an event of the type that the first byte names; bit 7 packs its message."""
    first, text = (data[0] if data else 0), data[1:].decode("utf-8", "replace")
    raw = NotificationEvent(
        eventId=7, eventTime=0, eventType=_TYPES[(first & 0x7F) % len(_TYPES)], dbName="d", tableName="t"
    )
    raw.message, raw.messageFormat = text, JSON_FORMAT
    if first & 0x80:
        raw.messageFormat = GZIP_FORMAT
        raw.message = base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), 1)).decode()
    event = read_event(raw)
    assert event.event_id == 7
    assert not isinstance(event, events.UnknownEvent)
