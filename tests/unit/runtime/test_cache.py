"""The per-user cache and its locks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from airflow_hive_federation.model.files import hidden_name
from airflow_hive_federation.runtime.cache import (
    cache_directory,
    data_directory,
    exclusively,
    is_locked,
    short_digest,
    write_atomically,
)


@pytest.mark.parametrize(
    ("environ", "platform", "expected"),
    [
        ({"HOME": "/home/ann"}, "linux", "/home/ann/.cache/airflow-hive-federation"),
        ({"HOME": "/Users/ann"}, "darwin", "/Users/ann/Library/Caches/airflow-hive-federation"),
        ({"HOME": "/home/ann", "XDG_CACHE_HOME": "/var/c"}, "linux", "/var/c/airflow-hive-federation"),
        ({"HOME": "/home/ann", "AIRFLOW_HIVE_FEDERATION_CACHE": "/big/disk"}, "linux", "/big/disk"),
    ],
)
def test_the_cache_is_where_the_platform_keeps_caches(
    environ: dict[str, str], platform: str, expected: str
) -> None:
    assert cache_directory(environ, platform) == Path(expected)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"HOME": "/home/ann"}, "/home/ann/airflow-hive-federation"),
        ({"HOME": "/home/ann", "XDG_DATA_HOME": "/home/ann/.data"}, "/home/ann/airflow-hive-federation"),
        ({"HOME": "/home/ann", "AIRFLOW_HIVE_FEDERATION_DATA": "/big/disk"}, "/big/disk"),
    ],
)
def test_data_are_where_hive_hides_nothing(environ: dict[str, str], expected: str) -> None:
    directory = data_directory(environ)
    assert directory == Path(expected)
    assert hidden_name(str(directory)) is None


def test_an_atomic_write_leaves_nothing_beside_the_file(tmp_path: Path) -> None:
    write_atomically(tmp_path / "deep" / "file", b"one")
    write_atomically(tmp_path / "deep" / "file", b"two")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["file"]
    assert (tmp_path / "deep" / "file").read_bytes() == b"two"


def test_a_digest_depends_on_the_ends_of_its_parts() -> None:
    assert short_digest(b"ab", b"c") != short_digest(b"a", b"bc")


def test_a_lock_is_seen_while_its_holder_lives_and_gone_when_it_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    holder = (
        "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX);"
        "print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", holder, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert is_locked(path)
        process.kill()
    assert not is_locked(path)


def test_another_process_waits_for_the_exclusive_section(tmp_path: Path) -> None:
    path, order = tmp_path / "x.lock", tmp_path / "order"
    code = (
        "import sys; from pathlib import Path\n"
        "from airflow_hive_federation.runtime.cache import exclusively\n"
        "print('begun', flush=True)\n"
        "with exclusively(Path(sys.argv[1])): Path(sys.argv[2]).open('a').write('second')"
    )
    with exclusively(path):
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(path), str(order)], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        order.write_text("first ")
    with process:
        assert process.wait(30) == 0
    assert order.read_text() == "first second"
