"""Owner, group and mode of copies: never wider than those of their sources."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_hive_federation.errors import ConfigurationError, StoragePermissionError
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.replication import policy
from airflow_hive_federation.storage.copying import CopySettings, copy_file
from airflow_hive_federation.storage.permissions import (
    PRESERVABLE,
    Preserve,
    check_preserved,
    creation_mode,
    directory_pairs,
)
from airflow_hive_federation.storage.publishing import publishing, write_atomically

ROOT = os.geteuid() == 0
NOBODY = 65534


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@contextmanager
def umask(value: int) -> Iterator[None]:
    before = os.umask(value)
    try:
        yield
    finally:
        os.umask(before)


def item(root: Path, name: str = "t/delta/f", *, levels: int = 2, **fields: object) -> CopyItem:
    source = root / "source" / name
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text("rows", encoding="utf-8")
    return CopyItem(
        source=f"file:{source}",
        target=f"file:{root}/target/{name}",
        size_bytes=4,
        source_levels=levels,
        target_levels=levels,
        **fields,  # type: ignore[arg-type]
    )


def rewrite(source: str, target: str, write_ids: str, options: object) -> None:
    """As the ORC writer does it: opens the target by fsspec."""
    import fsspec

    with fsspec.filesystem("file").open(target.removeprefix("file:"), "wb") as file:
        file.write(b"rows")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    file_mode=st.integers(0o400, 0o777).map(lambda mode: mode | 0o400),
    directory_mode=st.integers(0o700, 0o777),
    mask=st.sampled_from([0o000, 0o022, 0o027, 0o077]),
    filtered=st.booleans(),
    there=st.none() | st.integers(0o600, 0o777).map(lambda mode: mode | 0o600),
)
def test_no_copy_is_wider_than_its_source(
    tmp_path_factory: pytest.TempPathFactory,
    file_mode: int,
    directory_mode: int,
    mask: int,
    filtered: bool,
    there: int | None,
) -> None:
    root = tmp_path_factory.mktemp("modes")
    entry = item(root, visible_write_ids="t:1:1:9223372036854775807::" if filtered else None)
    source, target = root / "source/t/delta/f", root / "target/t/delta/f"
    source.chmod(file_mode)
    for directory in (source.parent, source.parent.parent):
        directory.chmod(directory_mode)
    if there is not None:
        # An identical one, of whoever copied before.
        target.parent.mkdir(parents=True)
        target.write_text("rows", encoding="utf-8")
        target.chmod(there)
    with umask(mask):
        for _ in range(2):
            outcome = copy_file(entry, CopySettings(rewrite=rewrite))
    assert outcome.preserved
    assert target.read_text(encoding="utf-8") == "rows"
    assert mode(target) & ~file_mode == 0
    if there is None:
        assert mode(target) == file_mode & 0o666 & ~mask
        assert mode(target.parent) == mode(target.parent.parent) == (directory_mode & ~mask) | 0o700 & ~mask
    assert [path.name for path in target.parent.iterdir()] == ["f"]


@pytest.mark.parametrize("filtered", [False, True])
def test_the_whole_mode_is_kept_on_demand(tmp_path: Path, filtered: bool) -> None:
    entry = item(tmp_path, visible_write_ids="t:1:1:9223372036854775807::" if filtered else None)
    (tmp_path / "source/t/delta/f").chmod(0o664)
    (tmp_path / "source/t/delta").chmod(0o2775)
    (tmp_path / "source/t").chmod(0o750)
    preserve = CopySettings(rewrite=rewrite, preserve=Preserve(letters="p"))
    with umask(0o077):
        # Then as a run that was killed between the directory and its mode leaves them.
        for _ in range(2):
            assert copy_file(entry, preserve).preserved
            assert [mode(tmp_path / "target" / name) for name in ("t", "t/delta", "t/delta/f")] == [
                0o750,
                0o775,
                0o664,
            ]
            for name in ("t", "t/delta"):
                (tmp_path / "target" / name).chmod(0o700)
            (tmp_path / "target/t/delta/f").chmod(0o600)


@pytest.mark.skipif(not ROOT, reason="only the superuser gives files away")
def test_owner_and_group_are_kept_on_demand(tmp_path: Path) -> None:
    entry = item(tmp_path)
    for name in ("t", "t/delta", "t/delta/f"):
        os.chown(tmp_path / "source" / name, 1234, 4321)
    copy_file(entry)
    assert (tmp_path / "target/t/delta/f").stat().st_uid == os.geteuid()
    for _ in range(2):
        copy_file(entry, CopySettings(preserve=Preserve(letters="ug")))
        stats = [(tmp_path / "target" / name).stat() for name in ("t", "t/delta", "t/delta/f")]
        assert {(status.st_uid, status.st_gid) for status in stats} == {(1234, 4321)}


@pytest.mark.parametrize("strictly", [True, False])
def test_an_owner_that_cannot_be_kept(strictly: bool) -> None:
    """The source belongs to the superuser, and another user makes the copy."""
    # pytest closes its own directories to other users whenever another run of it begins.
    with tempfile.TemporaryDirectory() as root:
        copy_without_the_owner(Path(root), strictly)


def copy_without_the_owner(root: Path, strictly: bool) -> None:
    target = root / "target"
    target.mkdir()

    def copy() -> None:
        item = CopyItem(
            source="file:/etc/passwd",
            target=f"file:{target}/f",
            size_bytes=Path("/etc/passwd").stat().st_size,
        )
        settings = CopySettings(preserve=Preserve(letters="up", strictly=strictly))
        if strictly:
            with pytest.raises(StoragePermissionError, match=r"owner, group and mode.*preserve_strictly"):
                copy_file(item, settings)
            assert list(target.iterdir()) == []
        else:
            assert not copy_file(item, settings).preserved
            assert mode(target / "f") == mode(Path("/etc/passwd"))

    as_another_user(root, copy)


def as_another_user(root: Path, act: Callable[[], None]) -> None:
    """Run as a user who is not the superuser: in a child, if we are."""
    if not ROOT:
        act()
        return
    root.chmod(0o711)
    os.chown(root / "target", NOBODY, NOBODY)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            act()
            code = 0
        finally:
            sys.stderr.flush()
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_directory_that_is_gone_at_the_source_is_closed(tmp_path: Path) -> None:
    """The change manager has the file, and nobody knows who might enter its directory."""
    entry = item(tmp_path)
    kept = tmp_path / "cmroot" / "f"
    kept.parent.mkdir()
    (tmp_path / "source/t/delta/f").rename(kept)
    (tmp_path / "source/t/delta").rmdir()
    kept.chmod(0o640)
    copy_file(replace(entry, kept=f"file:{kept}"))
    assert mode(tmp_path / "target/t/delta") == 0o700
    assert mode(tmp_path / "target/t/delta/f") & ~0o640 == 0


def test_directories_correspond_from_the_outermost_on() -> None:
    staged = CopyItem(
        source="file:/s/t/p=1/base_5_v7/f",
        target="file:/w/t/p=1/_hidden/base_5/f",
        size_bytes=0,
        source_levels=3,
        target_levels=4,
    )
    assert list(directory_pairs(staged)) == [
        ("file:/w/t", "file:/s/t"),
        ("file:/w/t/p=1", "file:/s/t/p=1"),
        ("file:/w/t/p=1/_hidden", "file:/s/t/p=1/base_5_v7"),
        ("file:/w/t/p=1/_hidden/base_5", "file:/s/t/p=1/base_5_v7"),
    ]
    elsewhere = replace(staged, target="hdfs://n:1/w/t/f", target_levels=1)
    assert list(directory_pairs(elsewhere)) == [("hdfs://n:1/w/t", "file:/s/t")]
    assert list(directory_pairs(replace(staged, source="s3://b/t/p=1/base_5_v7/f"))) == []


def test_what_is_made_of_several_files_is_as_closed_as_the_most_closed_of_them(tmp_path: Path) -> None:
    uris = []
    for name, file_mode in (("a", 0o644), ("b", 0o640), ("c", 0o604)):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(file_mode)
        uris.append(f"file:{tmp_path}/{name}")
    assert creation_mode(uris) == 0o600
    assert creation_mode(["s3://b/x"]) == 0o666
    with umask(0), publishing(f"file:{tmp_path}/made", mode=creation_mode(uris)) as file:
        file.write(b"x")
    assert mode(tmp_path / "made") == 0o600


def test_private_files(tmp_path: Path) -> None:
    with umask(0):
        write_atomically(f"file:{tmp_path}/a/b/f", [b"x"], private=True)
        write_atomically(f"file:{tmp_path}/c/f", [b"x"])
    assert [mode(tmp_path / name) for name in ("a", "a/b", "a/b/f")] == [0o700, 0o700, 0o600]
    assert [mode(tmp_path / name) for name in ("c", "c/f")] == [0o777, 0o666]


def test_what_no_driver_can_keep_is_refused() -> None:
    item = CopyItem(source="memory://n/f", target="file:/f", size_bytes=0)
    check_preserved(Preserve(), [item])
    check_preserved(Preserve(letters="ugpa"), [replace(item, source="s3://b/f")])
    with pytest.raises(ConfigurationError, match=r"memory:// cannot be preserved"):
        check_preserved(Preserve(letters="p"), [item])
    with pytest.raises(ConfigurationError, match=r"'x' cannot be preserved"):
        check_preserved(Preserve(letters="ugpx"), [])
    with pytest.raises(ConfigurationError, match=r"preserve is 'x'"):
        policy.ReplicationPolicy(name="p", source_database="d", dump_root="/d", preserve="x")
    assert policy.PRESERVABLE == PRESERVABLE


@pytest.mark.parametrize(
    ("source", "target", "letters", "lost"),
    [
        ("hdfs://n/f", "hdfs://m/f", "ugpa", ""),
        ("hdfs://n/f", "file:/f", "p", ""),
        ("hdfs://n/f", "file:/f", "gup", "ug"),
        ("file:/f", "hdfs://n/f", "pa", "a"),
        ("file:/f", "file:/g", "ugp", ""),
        ("file:/f", "file:/g", "ugpa", "a"),
    ],
)
def test_owners_and_lists_are_kept_within_one_kind_of_store(
    source: str, target: str, letters: str, lost: str
) -> None:
    item, preserve = CopyItem(source=source, target=target, size_bytes=0), Preserve(letters=letters)
    if not lost:
        check_preserved(preserve, [item])
        return
    with pytest.raises(ConfigurationError, match=rf"^'{lost}' cannot be preserved"):
        check_preserved(preserve, [item])
