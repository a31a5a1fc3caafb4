"""Runs over several places: each goes on in each place, and leaves out or repeats no file in silence."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.ingest.errors import SerializationError
from airflow_hive_federation.ingest.files import IngestRequest, ingest_files
from airflow_hive_federation.ingest.inputs import InputFile, Position
from airflow_hive_federation.ingest.places import Places, _holds
from airflow_hive_federation.metastore import MetastoreSettings
from tests.support.examples import seeds
from tests.support.streaming import rows


def unread(position: Position | None, inputs: list[str], files: list[str]) -> list[str]:
    found = [InputFile(uri=f"file:{uri}", size_bytes=1) for uri in sorted(files)]
    return [file.uri.removeprefix("file:") for file, _ in Places(inputs, found, position, "files").unread()]


def read(position: Position | None, inputs: list[str], files: list[str]) -> Position:
    """Return the position after a run that reads all files."""
    found = [InputFile(uri=f"file:{uri}", size_bytes=1) for uri in sorted(files)]
    places = Places(inputs, found, position, "files")
    for file, _ in places.unread():
        places.finish(file.uri)
        position = places.position(Position(uri=file.uri, offset=None))
    assert position is not None
    kept = Position.of(position.to_text())
    assert kept == position
    return kept


@pytest.mark.parametrize("inputs", [["a", "b"], ["in/orders_*.csv", "in/returns_*.csv"]])
def test_a_run_that_was_cut_off_in_the_second_place_is_completed(
    settings: MetastoreSettings, tmp_path: Path, inputs: list[str]
) -> None:
    if len({name.partition("/")[0] for name in inputs}) == 2:
        first, bad, last, new = "a/1.csv", "b/2.csv", "b/3.csv", "a/2.csv"
    else:
        first, bad, last, new = (
            "in/orders_1.csv",
            "in/returns_2.csv",
            "in/returns_3.csv",
            "in/orders_2.csv",
        )
    for name, text in ((first, "1,x\n"), (bad, "2,y\nbad\n"), (last, "4,w\n")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    request = IngestRequest(
        table="d.plain", inputs=[f"{tmp_path}/{name}" for name in inputs], commit_records=1
    )
    with pytest.raises(SerializationError):
        ingest_files(settings, request)
    assert rows(tmp_path / "plain") == [(1, "x")]
    (tmp_path / bad).write_text("2,y\n3,z\n")
    assert ingest_files(settings, request).records == 3
    # The next run of the schedule goes on in both places.
    (tmp_path / new).write_text("5,v\n")
    assert ingest_files(settings, request).records == 1
    assert ingest_files(settings, request).records == 0
    assert [row[0] for row in rows(tmp_path / "plain")] == [1, 2, 3, 4, 5]


def test_a_file_that_was_begun_comes_first(tmp_path: Path) -> None:
    begun = Position(
        uri="file:/b/1", offset=7, line=2, place="file:/b", places={"file:/a": "1", "file:/b": ""}
    )
    files = [InputFile(uri=f"file:{uri}", size_bytes=9) for uri in ("/a/1", "/a/2", "/b/1", "/b/2")]
    places = Places(["/a", "/b"], files, begun, "files")
    assert [(file.uri, at.offset, at.line) for file, at in places.unread()] == [
        ("file:/b/1", 7, 2),
        ("file:/a/2", 0, 0),
        ("file:/b/2", 0, 0),
    ]
    assert places.position(begun) == begun
    places.finish("file:/b/1")
    after = places.position(Position(uri="file:/a/2", offset=3, line=1))
    assert after.places == {"file:/a": "1", "file:/b": "1"}


def test_places_may_come_and_go() -> None:
    position = read(None, ["/a", "/b"], ["/b/1"])
    # A place was empty; another one is new, and one is left out for a while.
    files = ["/0/1", "/a/1", "/b/1"]
    assert unread(position, ["/0", "/a", "/b"], files) == ["/0/1", "/a/1"]
    position = read(position, ["/0", "/a", "/b"], files)
    position = read(position, ["/0"], ["/0/1", "/0/2"])
    assert unread(position, ["/a", "/b"], ["/a/1", "/b/1", "/b/2"]) == ["/b/2"]
    # Other spellings of the same places name the same files.
    assert unread(position, ["/a/*", "/b/*"], ["/a/1", "/b/1", "/b/2"]) == ["/b/2"]
    assert unread(position, ["/"], ["/a/1", "/b/1", "/b/2", "/c/1"]) == ["/b/2", "/c/1"]


def test_the_position_of_one_place_does_not_name_it() -> None:
    position = read(None, ["/b"], ["/b/1"])
    assert position == Position(uri="file:/b/1", offset=None)
    assert unread(position, ["/b", "/c"], ["/b/1", "/b/2", "/c/1"]) == ["/b/2", "/c/1"]
    position = read(position, ["/b", "/c"], ["/b/1", "/b/2", "/c/1"])
    assert position.floor == "file:/b/1"
    with pytest.raises(ConfigurationError, match="/a/1 would be left out"):
        unread(position, ["/a", "/b"], ["/a/1", "/b/2"])


def test_files_that_were_named_one_by_one() -> None:
    position = read(None, ["/a/2", "/b/1"], ["/a/2", "/b/1"])
    assert unread(position, ["/a/2", "/a/3", "/b/1"], ["/a/2", "/a/3", "/b/1"]) == ["/a/3"]
    with pytest.raises(ConfigurationError, match=r"/a/1 may have been taken.*one by one, up to file:/a/2"):
        unread(position, ["/a", "/b"], ["/a/1", "/a/2", "/b/1"])


def test_a_bucket_is_a_place() -> None:
    found = [InputFile(uri=f"s3://bucket/{name}", size_bytes=1) for name in "12"]
    (left,) = Places(["s3a://bucket/"], found, Position(uri="s3://bucket/1", offset=None), "files").unread()
    assert left[0].uri == "s3://bucket/2"


def test_hidden_files_that_are_named_later() -> None:
    position = read(None, ["/a", "/b"], ["/a/z", "/b/1"])
    assert unread(position, ["/a", "/a/_x"], ["/a/_x", "/a/z"]) == ["/a/_x"]


@pytest.mark.parametrize("places", [None, {"file:/a/.": "", "file:/b/.": ""}])
def test_a_run_over_other_named_files_loses_no_begun_file(places: dict[str, str] | None) -> None:
    begun = Position(uri="file:/a/1", offset=7, place="file:/a/." if places else None, places=places)
    with pytest.raises(ConfigurationError, match="stopped within file:/a/1, which the inputs do not name"):
        unread(begun, ["/a/2"], ["/a/2"])
    assert unread(begun, ["/a/1", "/a/2"], ["/a/1", "/a/2"]) == ["/a/1", "/a/2"]


def test_a_begun_file_that_is_not_named_any_more() -> None:
    begun = Position(uri="file:/a/2", offset=7, place="file:/a", places={"file:/a": "1", "file:/b": ""})
    position = read(begun, ["/b", "/c"], ["/b/1"])
    with pytest.raises(ConfigurationError, match="/a/2 would be left out"):
        unread(position, ["/a"], ["/a/1", "/a/2"])
    # It has vanished, and the others of its place are read.
    assert unread(begun, ["/a", "/b"], ["/a/1", "/a/3"]) == ["/a/3"]


def test_many_places_of_earlier_runs_are_forgotten_and_not_read_again() -> None:
    position = None
    for day in range(100, 150):
        inputs = [f"/{day}/orders", f"/{day}/returns"]
        position = read(position, inputs, [f"{place}/1" for place in inputs])
    assert position is not None
    assert position.places is not None
    assert len(position.places) == 22
    assert unread(position, ["/140/orders", "/140/returns"], ["/140/orders/1", "/140/returns/1"]) == []
    with pytest.raises(ConfigurationError, match="/100/orders/1 would be left out"):
        unread(position, ["/100/orders", "/149/orders"], ["/100/orders/1", "/149/orders/1"])


INPUTS = ["/a", "/a/*", "/a/1*", "/a/2*", "/b", "/b/*", "/b/s", "/b/s/*", "/c", "/"]


class History:
    """Runs over random inputs, some of which are cut off, and the records that they take.

    :param fewest: the fewest inputs of a run.
    """

    def __init__(self, seed: int, fewest: int) -> None:
        self.fewest = fewest
        self.chance = random.Random(seed)
        self.position: Position | None = None
        #: The files, each with the number of the run before which it appeared.
        self.files: dict[str, int] = {}
        self.taken: dict[str, int] = {}
        #: The files that a run over a place has finished, each with the number of the run.
        self.passed: list[tuple[str, str, int]] = []

    def run(self, number: int) -> None:
        for _ in range(self.chance.randint(0, 2)):
            folder = self.chance.choice(["/a", "/b", "/b/s", "/c"])
            self.files.setdefault(f"{folder}/{self.chance.randint(10, 29)}", number)
        inputs = self.chance.sample(INPUTS, self.chance.randint(self.fewest, 3))
        inputs += self.chance.sample(sorted(self.files), min(len(self.files), self.chance.choice((0, 0, 1))))
        listed = sorted(
            file
            for file in self.files
            if any(uri == file or _holds(f"file:{uri}", f"file:{file}") for uri in inputs)
        )
        found = [InputFile(uri=f"file:{file}", size_bytes=2) for file in listed]
        with contextlib.suppress(ConfigurationError):
            if self._read(Places(inputs, found, self.position, "files"), inputs, number):
                for file in listed if self.fewest > 1 else ():
                    assert self.taken.get(file) == 2 or self._was_late(file), file

    def _read(self, places: Places, inputs: list[str], number: int) -> bool:
        """Read until the end, or until the run is cut off."""
        for file, at in places.unread():
            uri = file.uri.removeprefix("file:")
            if not at.offset:
                self.passed += [(uri, place, number) for place in inputs]
            for offset in range(at.offset or 0, 2):
                if self.chance.random() < 0.1:
                    return False
                self.taken[uri] = self.taken.get(uri, 0) + 1
                assert self.taken[uri] == offset + 1, f"{file} by {inputs}"
                self._commit(places.position(Position(uri=file.uri, offset=offset + 1)))
            if self.chance.random() < 0.1:
                return False
            places.finish(file.uri)
            self._commit(places.position(Position(uri=file.uri, offset=None)))
            self.passed += [(uri, place, number) for place in inputs]
        return True

    def _commit(self, position: Position) -> None:
        self.position = Position.of(position.to_text())

    def _was_late(self, file: str) -> bool:
        """Return whether a place had a later file before this one appeared, or its files are named."""
        for other, place, number in self.passed:
            folder = f"file:{other.rpartition('/')[0]}/." if place in self.files else f"file:{place}"
            is_between = all(_holds(folder, f"file:{each}") for each in (file, other)) and file < other
            if is_between and (self.files[file] > number or place in self.files):
                return True
        return False


@pytest.mark.parametrize("fewest", [1, 2])
def test_random_histories(fewest: int) -> None:
    """No record is taken twice. Runs over several places leave out no file that appeared in order."""
    for seed in seeds(300):
        history = History(seed, fewest)
        for number in range(12):
            try:
                history.run(number)
            except AssertionError as error:
                error.add_note(f"seed {seed}, run {number}: {history.position}")
                raise
