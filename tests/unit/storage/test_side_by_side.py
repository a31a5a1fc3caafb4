"""Small requests to a store, side by side."""

from __future__ import annotations

import threading

import pytest

from airflow_hive_federation.storage.side_by_side import side_by_side


@pytest.mark.parametrize(
    ("uris", "in_turn"),
    [
        ([], True),
        (["s3://bucket/one"], True),
        (["file:/warehouse/1", "/warehouse/2"], True),
        ([f"s3://bucket/{number}" for number in range(20)], False),
        (["file:/warehouse/1", "s3://bucket/2"], False),
        ([f"file:/warehouse/{number}" for number in range(300)], False),
    ],
)
def test_answers_keep_their_order(uris: list[str], in_turn: bool) -> None:
    asked_by = set()

    def ask(uri: str) -> str:
        asked_by.add(threading.current_thread())
        return f"{uri}!"

    assert side_by_side(ask, uris) == [f"{uri}!" for uri in uris]
    assert (asked_by <= {threading.current_thread()}) is in_turn


@pytest.mark.parametrize("place", ["/warehouse", "s3://bucket"])
def test_an_error_is_raised(place: str) -> None:
    def ask(uri: str) -> str:
        raise FileNotFoundError(uri)

    with pytest.raises(FileNotFoundError, match="1"):
        side_by_side(ask, [f"{place}/{number}" for number in (1, 2)])
