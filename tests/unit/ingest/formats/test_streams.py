"""Streams cut into records, wherever chunks end."""

from __future__ import annotations

import io
import random

import pytest

from airflow_hive_federation.ingest.formats import streams
from airflow_hive_federation.ingest.partitions import partition_values
from tests.support.examples import seeds


@pytest.mark.parametrize("seed", seeds(20))
@pytest.mark.parametrize("delimiter", [None, b"|", b"<>", b"<<>"])
def test_records_are_those_of_a_split(
    monkeypatch: pytest.MonkeyPatch, seed: int, delimiter: bytes | None
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(streams, "_READ_BYTES", chance.randint(1, 7))
    records = [bytes(chance.choices(b"ab", k=chance.randint(0, 9))) for _ in range(30)] + [b"z"]
    end = delimiter or chance.choice([b"\n", b"\r\n"])
    content = end.join(records) + (end if seed % 2 else b"")
    read = [record for records in streams.records_of(io.BytesIO(content), delimiter) for record in records]
    assert read == records, f"seed {seed}"


def test_text_and_nothing() -> None:
    assert list(streams.records_of(io.StringIO("ä\nb"), None)) == [["ä".encode()], [b"b"]]
    assert not list(streams.records_of(io.BytesIO(b""), None))


def test_values_of_a_partition_name() -> None:
    assert partition_values("day=2026-01-01/place=a%2Fb%25") == ("2026-01-01", "a/b%")
