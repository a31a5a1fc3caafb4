"""Guards of readers name the fault, where a later error would name another one or none."""

from __future__ import annotations

import base64
import gzip
import io
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc

from airflow_hive_federation.errors import AcidFormatError, ConfigurationError
from airflow_hive_federation.metastore.idl.types import NotificationEvent
from airflow_hive_federation.model import events, thrift_json
from airflow_hive_federation.model.event_messages import GZIP_FORMAT, JSON_FORMAT, read_event
from airflow_hive_federation.model.types import parse_type
from airflow_hive_federation.orc.tail import read_tail, replace_footer


@pytest.mark.parametrize("text", ["array<int>>", "int int", "decimal(1,0))"])
def test_what_follows_a_type_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_type(text)


@pytest.mark.parametrize("text", ['{["a"],1}', '{["a"]=1}', '{["a"]1}'])
def test_a_map_without_a_colon_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="':' expected"):
        thrift_json.loads(text)


def packed(data: bytes) -> str:
    return base64.b64encode(data).decode()


_WHOLE = gzip.compress(b'{"table":"t"}' * 100, mtime=0)


@pytest.mark.parametrize(
    ("message", "packing", "why"),
    [
        ("[1]", JSON_FORMAT, "no JSON object"),
        ('"x"', JSON_FORMAT, "no JSON object"),
        ("not Base64!", GZIP_FORMAT, "not Base64 of gzip"),
        (packed(b"not gzip"), GZIP_FORMAT, "not Base64 of gzip"),
        (packed(_WHOLE[:-12]), GZIP_FORMAT, "not Base64 of gzip"),
        (packed(_WHOLE[:10] + b"\xff" + _WHOLE[11:]), GZIP_FORMAT, "not Base64 of gzip"),
    ],
    ids=["list", "string", "no Base64", "no gzip", "cut off", "damaged"],
)
def test_a_message_that_cannot_be_unpacked_has_a_reason(message: str, packing: str, why: str) -> None:
    raw = NotificationEvent(
        eventId=7, eventTime=0, eventType="CREATE_TABLE", dbName="d", tableName="t", message=message
    )
    raw.messageFormat = packing
    event: Any = read_event(raw)
    assert isinstance(event, events.UnreadableEvent)
    assert why in event.reason


@pytest.mark.parametrize("end", [b"", b"\x03ORC\x03", b"PAR1", b"\x08\x01OXC\x05", b"ORC\xff"])
def test_a_file_without_a_postscript_is_no_orc_file(end: bytes) -> None:
    with pytest.raises(AcidFormatError, match="not an ORC file, or is truncated"):
        read_tail(io.BytesIO(end), "f")


def test_types_of_another_number_of_columns_are_refused() -> None:
    sink = io.BytesIO()
    orc.write_table(pa.table({"a": [1]}), sink)
    before = sink.getvalue()
    file = io.BytesIO(before)
    with pytest.raises(AcidFormatError, match="has 2 columns, but 1 were expected"):
        replace_footer(file, "f", types=[b""], calendar=None, user_metadata={})
    assert file.getvalue() == before
