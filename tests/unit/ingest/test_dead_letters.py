"""Dead letters: written when they are told to be, appended to whatever is there."""

from __future__ import annotations

import json
from pathlib import Path

import fsspec
import pytest

from airflow_hive_federation.errors import StorageError
from airflow_hive_federation.ingest import dead_letters
from airflow_hive_federation.ingest.dead_letters import DeadLetter, DeadLetterFile


def letter(number: int) -> DeadLetter:
    return DeadLetter(record=b"x\xff", record_number=number, column="a", reason="bad")


def numbers(content: bytes) -> list[int]:
    return [json.loads(line)["record_number"] for line in content.splitlines()]


@pytest.mark.parametrize("place", ["local", "memory"])
def test_a_file_anywhere_is_appended_to(tmp_path: Path, place: str) -> None:
    uri = f"{tmp_path}/below/bad.jsonl" if place == "local" else f"memory://{tmp_path.name}/below/bad.jsonl"
    file = DeadLetterFile(uri)
    file.flush()
    assert not fsspec.filesystem(place).exists(uri)
    for number in (1, 2):
        file(letter(number))
    file.flush()
    file.flush()
    again = DeadLetterFile(uri)
    again(letter(3))
    again.flush()
    with fsspec.open(uri if place == "memory" else f"file://{uri}") as written:
        assert numbers(written.read()) == [1, 2, 3]


def test_not_all_of_many_are_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "_HELD_BYTES", 1000)
    file = DeadLetterFile(f"{tmp_path}/bad.jsonl")
    for number in range(100):
        file(letter(number))
    assert len((tmp_path / "bad.jsonl").read_bytes().splitlines()) > 80


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    file = DeadLetterFile(f"{tmp_path}/file/bad.jsonl")
    file(letter(1))
    with pytest.raises(StorageError):
        file.flush()
