"""Results of benchmarks: their numbers, and that nothing kept is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import results
from benchmarks.source_database import Scale


@pytest.mark.parametrize(("ours_s", "reached"), [(1.0, True), (2.0, True), (2.1, False)])
def test_faster_than_a_peer(ours_s: float, reached: bool) -> None:
    result = results.faster("bootstrap", "w", ours_s=ours_s, peer="hive-repl", peer_s=10.0, at_least=5.0)
    assert result.reached is reached
    assert result.ratio == round(10.0 / ours_s, 4)
    assert result.aim == "ratio >= 5"


def test_beside_a_limit_less_is_better() -> None:
    near = results.beside_limit("b", "w", ours_s=3.0, peer="cp", peer_s=2.0, at_most=1.5)
    far = results.beside_limit("b", "w", ours_s=3.2, peer="cp", peer_s=2.0, at_most=1.5)
    assert (near.reached, far.reached) == (True, False)


def test_nearly_is_not_reached() -> None:
    near = results.seconds("g", "w", ours_s=0.0052, peer="p", peer_s=0.001, at_most_s=0.005)
    assert (near.ours_s, near.reached) == (0.0052, False)
    assert not results.beside_limit("g", "w", ours_s=1.004, peer="p", peer_s=1, at_most=1).reached
    assert "5.20 ms" in results.table([near])


def test_an_aim_in_seconds_and_no_aim() -> None:
    assert not results.seconds("import", "w", ours_s=0.31, peer="p", peer_s=9.0, at_most_s=0.3).reached
    assert results.faster("b", "w", ours_s=9.0, peer="p", peer_s=1.0, at_least=None).reached


def test_results_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "build" / "bench.json"
    result = results.faster("bootstrap", "w", ours_s=1.0, peer="hive-repl", peer_s=6.0, at_least=5.0)
    for _ in range(2):
        results.append(path, [result])
    kept = json.loads(path.read_text(encoding="utf-8"))
    assert len(kept) == 2
    assert kept[0] == {
        "id": "bootstrap",
        "work": "w",
        "ours_s": 1.0,
        "peer": "hive-repl",
        "peer_s": 6.0,
        "ratio": 6.0,
        "aim": "ratio >= 5",
    }
    assert [path.name for path in path.parent.iterdir()] == ["bench.json"]


def test_ten_times_the_partitions_are_ten_times_the_bytes() -> None:
    scale = Scale(tables=20, partitions=50, file_bytes=220_000)
    assert str(scale.times_partitions(10)) == "20 ACID tables x 500 partitions, about 2,200 MB"
