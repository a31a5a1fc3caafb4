"""A take-over removes the files of write ids that no reader of the target sees, without a call per id."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_hive_federation.errors import CycleLostError
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.take_over import _remove, _Removing, invisible_to

WATERMARK = 10_000_000


class SearchedIds(tuple[int, ...]):
    """Open write ids that may be searched, not walked."""

    __slots__ = ()

    def __iter__(self) -> Iterator[int]:
        raise AssertionError("every open write id was walked")


@pytest.mark.parametrize(
    ("path", "unwanted"),
    [
        ("base_5/bucket_00000", False),
        ("base_7/bucket_00000", True),
        ("delta_0000008_0000009/bucket_00000", False),
        ("delta_0000001_0000007/bucket_00000", True),
        ("delta_0000007_0000007_0000/bucket_00000", True),
        ("p=1/delete_delta_0000006_0000008/bucket_00000", True),
        ("p=1/delta_0000010_0000010/bucket_00000", False),
        ("p=1/delta_0000010_0000011/bucket_00000", True),
        ("_hive_federation/delta_0000001_0000001/bucket_00000", True),
        ("part-00000", False),
    ],
)
def test_what_no_reader_sees(path: str, *, unwanted: bool) -> None:
    write_ids = ValidWriteIds(high_watermark=10, open_ids=(7,), min_open_id=7)
    assert invisible_to(write_ids)(path) is unwanted


def test_open_write_ids_are_searched_not_walked() -> None:
    write_ids = ValidWriteIds(
        high_watermark=WATERMARK,
        open_ids=SearchedIds(range(WATERMARK - 1000, WATERMARK)),
        min_open_id=WATERMARK - 1000,
    )
    unwanted = invisible_to(write_ids)
    assert not any(unwanted(f"base_{WATERMARK - 2000 - number}/bucket_00000") for number in range(5_000))
    assert not any(unwanted(f"delta_1_{WATERMARK - 2000 - number}/bucket_00000") for number in range(5_000))
    assert unwanted(f"delta_1_{WATERMARK - 5}/bucket_00000")


def test_it_answers_as_a_walk_of_the_range_does() -> None:
    seed = 20261125
    rng = random.Random(seed)
    for _ in range(300):
        high = rng.randint(1, 40)
        open_ids = tuple(sorted(rng.sample(range(1, high + 1), rng.randint(0, min(high, 5)))))
        write_ids = ValidWriteIds(high_watermark=high, open_ids=open_ids)
        low = rng.randint(1, 45)
        top = rng.randint(low, 45)
        walked = top > high or not set(open_ids).isdisjoint(range(low, top + 1))
        assert invisible_to(write_ids)(f"delta_{low}_{top}/bucket_00000") is walked, (seed, write_ids)


@pytest.mark.parametrize("allowed", [0, 1])
def test_what_has_lost_its_lock_removes_nothing_more(tmp_path: Path, allowed: int) -> None:
    """One file in one directory: two removals, with a check before each."""
    file = tmp_path / "t" / "delta_0000007_0000007" / "bucket_00000"
    file.parent.mkdir(parents=True)
    file.touch()
    asked: list[str] = []

    def check() -> None:
        asked.append("")
        if len(asked) > allowed:
            raise CycleLostError("The lock is lost.", policy="p", holder="", reason="refused")

    policy = ReplicationPolicy(name="p", source_database="d", dump_root="file:/dumps")
    with pytest.raises(CycleLostError):
        _remove(_Removing(policy=policy, check=check), f"file:{tmp_path}/t", lambda _: True)
    assert (file.parent.exists(), file.exists()) == (True, not allowed)
