"""Reading ahead: the order, the errors and the end are the generator's."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager

import pytest

from airflow_hive_federation.compaction.read_ahead import ReadAhead, entered_ahead


def test_all_items_come_in_order_and_no_more_are_made_than_asked_for() -> None:
    made: list[int] = []
    third_is_made = threading.Event()

    def numbers() -> Generator[int, None, None]:
        for number in range(50):
            made.append(number)
            if number == 2:
                third_is_made.set()
            yield number

    with closing(ReadAhead(numbers(), 3)) as ahead:
        assert third_is_made.wait(10)
        assert made == [0, 1, 2]
        for number in ahead:
            assert made[number] == number
            assert len(made) <= number + 4
        assert len(made) == 50


def test_an_error_comes_in_the_place_of_its_item_and_nothing_after_it() -> None:
    def broken() -> Generator[int, None, None]:
        yield 1
        raise ValueError("broken")

    with closing(ReadAhead(broken(), 2)) as ahead:
        items = iter(ahead)
        assert next(items) == 1
        with pytest.raises(ValueError, match="broken"):
            next(items)


def test_closing_ends_the_generator_where_it_is() -> None:
    ended = threading.Event()

    def endless() -> Generator[int, None, None]:
        try:
            while True:
                yield 0
        finally:
            ended.set()

    ahead = ReadAhead(endless(), 2)
    assert next(iter(ahead)) == 0
    ahead.close()
    assert ended.is_set()


class _Doors:
    """Records the doors that were entered and left."""

    def __init__(self) -> None:
        self.course: list[str] = []

    @contextmanager
    def door(self, name: str) -> Iterator[str]:
        self.course.append(f"in {name}")
        if name == "locked":
            raise ValueError(name)
        yield name
        self.course.append(f"out {name}")


def test_the_next_is_entered_before_one_is_yielded_and_each_is_left_before_the_next_is() -> None:
    doors = _Doors()
    for name in entered_ahead((doors.door(name) for name in "abc"), 1):
        doors.course.append(name)
    assert doors.course == ["in a", "in b", "a", "out a", "in c", "b", "out b", "c", "out c"]


@pytest.mark.parametrize("names", [["a", "locked"], ["a", "b", "locked"]])
def test_an_error_leaves_none_entered(names: list[str]) -> None:
    doors = _Doors()
    with pytest.raises(ValueError, match="locked"):
        list(entered_ahead((doors.door(name) for name in names), 1))
    assert "out a" in doors.course
    assert ("out b" in doors.course) == ("b" in names) == ("in b" in doors.course)


def test_who_ends_early_leaves_all() -> None:
    doors = _Doors()
    with closing(entered_ahead((doors.door(name) for name in "abc"), 1)) as entered:
        assert next(entered) == "a"
    assert sorted(doors.course) == ["in a", "in b", "out a", "out b"]
