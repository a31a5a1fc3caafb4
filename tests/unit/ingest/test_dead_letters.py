"""Dead letters are written on request, and appended to an existing file."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from moto.server import ThreadedMotoServer

from airflow_hive_federation.errors import StorageError
from airflow_hive_federation.ingest import dead_letters
from airflow_hive_federation.ingest.dead_letters import DeadLetter, DeadLetterFile
from airflow_hive_federation.storage.filesystem import open_filesystem


def letter(number: int) -> DeadLetter:
    return DeadLetter(record=b"x\xff", record_number=number, column="a", reason="bad")


def numbers(content: bytes) -> list[int]:
    return [json.loads(line)["record_number"] for line in content.splitlines()]


Place = tuple[str, dict[str, Any]]
"""A URI, and the options of its store."""


@pytest.fixture(params=["local", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "local":
        yield f"{tmp_path}/below/bad.jsonl", {}
        return
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    client = {"endpoint_url": f"http://{host}:{port}", "region_name": "eu-central-1"}
    options = {"key": "a-key", "secret": "a-secret", "client_kwargs": client}
    open_filesystem("s3://letters", options)[0].mkdir("letters")
    yield "s3://letters/below/bad.jsonl", options
    server.stop()


def test_a_file_anywhere_is_appended_to(place: Place) -> None:
    uri, options = place
    filesystem, path = open_filesystem(uri, options)
    file = DeadLetterFile(uri, options)
    file.flush()
    assert not filesystem.exists(path)
    for number in (1, 2):
        file(letter(number))
    file.flush()
    file.flush()
    again = DeadLetterFile(uri, options)
    again(letter(3))
    again.flush()
    assert numbers(filesystem.cat_file(path)) == [1, 2, 3]


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


def test_only_the_owner_reads_dead_letters(tmp_path: Path) -> None:
    """They hold records as they were."""
    letters = DeadLetterFile(f"{tmp_path}/below/bad.jsonl")
    letters(letter(1))
    letters.flush()
    assert stat.S_IMODE((tmp_path / "below").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "below" / "bad.jsonl").stat().st_mode) == 0o600
