"""Notification events: any message, in both formats, makes an event, if need be one that cannot be read."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

from airflow_hive_federation.metastore.idl.types import NotificationEvent
from airflow_hive_federation.model import events

_GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "events.json").read_text(encoding="utf-8"))
_TYPES = sorted({one["eventType"] for one in _GOLDEN})
ALLOWED = ()
TRACED = ("airflow_hive_federation.model.events", "airflow_hive_federation.model.thrift_json")
INPUTS = 1500
SEEDS = [
    bytes([_TYPES.index(one["eventType"])]) + one["message"].encode()
    for one in {one["eventType"]: one for one in _GOLDEN}.values()
]
TOKENS = [*b'{}[]":,\\', b"null", b"1e999", b"NaN", b"-1", b'{"', b'":[', b"\\u0000", b"[[[[", b'{"a":{"a":']
TOKENS = [bytes([one]) if isinstance(one, int) else one for one in TOKENS]


def run(data: bytes) -> None:
    """Read an event of the type that the first byte names; bit 7 packs its message."""
    first, text = (data[0] if data else 0), data[1:].decode("utf-8", "replace")
    raw = NotificationEvent(
        eventId=7, eventTime=0, eventType=_TYPES[(first & 0x7F) % len(_TYPES)], dbName="d", tableName="t"
    )
    raw.message, raw.messageFormat = text, events.JSON_FORMAT
    if first & 0x80:
        raw.messageFormat = events.GZIP_FORMAT
        raw.message = base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), 1)).decode()
    found = events.read_event(raw)
    assert found.event_id == 7
    assert not isinstance(found, events.UnknownEvent)
