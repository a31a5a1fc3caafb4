"""Sources that may be copied: by the text of a URI, and by the ends of links."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from airflow_hive_federation.errors import ConfigurationError, FileVanishedError, SourceNotAllowedError
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.storage.copying import CopySettings, copy_file
from airflow_hive_federation.storage.sources import ROOTS_VARIABLE, SourceRoots

pytestmark = pytest.mark.usefixtures("unbound_sources")


@dataclass
class File:
    uri: str


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """A table's directory; beside it is a file that is none of the table's."""
    (tmp_path / "warehouse/t/p=1").mkdir(parents=True)
    (tmp_path / "warehouse/t/p=1/a").write_text("rows", encoding="utf-8")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/key").write_text("sesame", encoding="utf-8")
    return tmp_path / "warehouse"


@pytest.mark.parametrize(
    ("roots", "uri", "allowed"),
    [
        ((), "hdfs://nn:8020/warehouse/t", True),
        ((), "s3a://bucket/t", True),
        ((), "abfss://c@account/t", True),
        ((), "file:/etc/passwd", False),
        ((), "/etc/passwd", False),
        ((), "local:/etc/passwd", False),
        ((), "http://169.254.169.254/latest", False),
        ((), "ftp://elsewhere/x", False),
        ((), "memory://x/y", False),
        ((), "simplecache:/etc/passwd", False),
        (("file:/data",), "file:///data/t", True),
        (("file:/data",), "local:/data/t", True),
        (("file:/data",), "file:/data", True),
        (("file:/data",), "file:/database/t", False),
        (("file:/data",), "hdfs://nn/data/t", False),
        (("file:/",), "file:/anything", True),
        (("s3://",), "s3a://any/t", True),
        (("s3://",), "file:/t", False),
        (("s3://one/a",), "s3a://one/a/t", True),
        (("s3://one/a",), "s3a://two/a/t", False),
        # A snapshot of a directory has the files of the directory, and of no other one.
        (("hdfs://nn/a/t",), "hdfs://nn/a/.snapshot/s/t/f", True),
        (("hdfs://nn/a/t",), "hdfs://nn/a/.snapshot/s/u/f", False),
        (("hdfs://nn/a/.snapshot",), "hdfs://nn/a/.snapshot/s/u/f", False),
        (("file:/a/t",), "file:/a/.snapshot/s/t", False),
    ],
)
def test_a_uri_lies_below_a_root_or_is_refused(roots: tuple[str, ...], uri: str, allowed: bool) -> None:
    sources = SourceRoots.of(roots, {})
    if allowed:
        sources.check_written(uri, "the file")
        return
    with pytest.raises(SourceNotAllowedError) as caught:
        sources.check_written(uri, "the location of table d.t")
    assert uri in str(caught.value)
    assert "table d.t" in str(caught.value)
    assert "allowed_source_roots" in caught.value.remedy


@pytest.mark.parametrize(
    ("bound", "chosen", "roots"),
    [
        ("", [], ()),
        ("", ["file:/a"], ("file:/a",)),
        ("file:/a, s3://b", [], ("file:/a", "s3://b")),
        ("file:/a,s3://", ["file:/a/b", "s3://c/d"], ("file:/a/b", "s3://c/d")),
        ("file:/a", ["file:/b"], None),
        ("file:/a", ["file:/"], None),
        ("s3://c/d", ["s3://"], None),
        ("file:/a", ["s3://c"], None),
        ("", ["relative/path"], None),
        ("", ["file:/a/../b"], None),
    ],
)
def test_a_policy_narrows_what_the_administrator_allows(
    monkeypatch: pytest.MonkeyPatch, bound: str, chosen: list[str], roots: tuple[str, ...] | None
) -> None:
    monkeypatch.setenv(ROOTS_VARIABLE, bound)

    def roots_found() -> tuple[str, ...]:
        policy = ReplicationPolicy(name="p", source_database="d", dump_root="/d", allowed_source_roots=chosen)
        return policy.sources.roots

    if roots is not None:
        assert roots_found() == roots
        return
    with pytest.raises(ConfigurationError, match=r"allowed_source_roots|has a name"):
        roots_found()


def settings(*roots: Path) -> CopySettings:
    return CopySettings(sources=SourceRoots.of([f"file:{root}" for root in roots], {}))


def copied(source: Path, target: Path, settings: CopySettings) -> str:
    item = CopyItem(source=f"file:{source}", target=f"file:{target}", size_bytes=source.stat().st_size)
    copy_file(item, settings)
    return target.read_text(encoding="utf-8")


def link(place: Path, to: Path) -> Path:
    place.symlink_to(to)
    return place


def test_a_file_and_links_within_the_roots_are_copied(warehouse: Path, tmp_path: Path) -> None:
    inside = link(warehouse / "t/b", warehouse / "t/p=1/a")
    through = link(warehouse / "t/p=2", warehouse / "t/p=1") / "a"
    elsewhere = link(warehouse / "t/c", tmp_path / "secret/key")
    for number, file in enumerate((warehouse / "t/p=1/a", inside, through)):
        assert copied(file, tmp_path / f"target/{number}", settings(warehouse)) == "rows"
    assert copied(elsewhere, tmp_path / "target/c", settings(warehouse, tmp_path / "secret")) == "sesame"
    # The root itself may be reached by a link, or be the file.
    root = link(tmp_path / "mounted", warehouse)
    assert copied(root / "t/p=1/a", tmp_path / "target/d", settings(root)) == "rows"
    assert copied(inside, tmp_path / "target/e", settings(inside)) == "rows"


@pytest.mark.parametrize("how", ["file", "directory", "chain", "relative"])
def test_a_link_out_of_the_roots_is_refused_when_listed_and_when_copied(
    warehouse: Path, tmp_path: Path, how: str
) -> None:
    table = warehouse / "t"
    secret = tmp_path / "secret/key"
    if how == "file":
        file = link(table / "x", secret)
    elif how == "directory":
        file = link(table / "p=3", tmp_path / "secret") / "key"
    elif how == "chain":
        file = link(table / "x", link(table / "y", secret))
    else:
        file = link(table / "x", Path("../../secret/key"))
    sources = SourceRoots.of([f"file:{warehouse}"], {})
    (table / "first").write_text("rows", encoding="utf-8")
    files = [File(f"file:{table}/p=1/a"), File(f"file:{table}/first"), File(f"file:{file}")]
    with pytest.raises(SourceNotAllowedError, match="secret/key") as caught:
        list(sources.watch(files, "a file of table d.t"))
    assert caught.value.path == f"file:{file}"
    with pytest.raises(SourceNotAllowedError):
        copied(file, tmp_path / "target/x", settings(warehouse))
    with pytest.raises(SourceNotAllowedError), sources.opened(f"file:{file}"):
        pass
    assert not (tmp_path / "target/x").exists()
    file.unlink(missing_ok=True) if how != "directory" else (table / "p=3").unlink()
    list(sources.watch(files[:2], "a file of table d.t"))
    assert copied(table / "p=1/a", tmp_path / "target/x", settings(warehouse)) == "rows"


def test_a_directory_is_followed_once_and_each_link_below_it(
    warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables have thousands of directories, with a file each."""
    files = []
    for number in range(50):
        (folder := warehouse / f"t/p=4/delta_{number:07}_{number:07}").mkdir(parents=True)
        (folder / "bucket_00000").write_text("rows", encoding="utf-8")
        files.append(File(f"file:{folder}/bucket_00000"))
    sources = SourceRoots.of([f"file:{warehouse}"], {})
    followed, resolve = [], os.path.realpath

    def counted(path: str) -> str:
        followed.append(path)
        return resolve(path)

    list(sources.watch(files[:1], "a file"))  # the roots are followed once per process
    monkeypatch.setattr("airflow_hive_federation.storage.sources.os.path.realpath", counted)
    assert list(sources.watch(files, "a file")) == files
    assert len(followed) == 1
    # A path outside of the roots is refused, also if it leads into them.
    mounted = link(tmp_path / "mounted", warehouse)
    beside = [File(file.uri.replace(str(warehouse), str(mounted))) for file in files]
    with pytest.raises(SourceNotAllowedError, match="mounted"):
        list(sources.watch([*files, *beside], "a file"))
    # A link beside them is followed: into the roots, and out of them, where a link leads back.
    inside = link(warehouse / "t/p=4/delta_0000050_0000050", warehouse / "t/p=1") / "a"
    files.append(File(f"file:{inside}"))
    assert list(sources.watch(files, "a file")) == files
    back = link(tmp_path / "secret/a", warehouse / "t/p=1/a")
    outside = link(warehouse / "t/p=4/delta_0000051_0000051", tmp_path / "secret")
    files += [File(f"file:{outside}/{back.name}"), File(f"file:{outside}/key")]
    with pytest.raises(SourceNotAllowedError, match="secret/key"):
        list(sources.watch(files, "a file"))


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_a_link_that_is_put_in_place_while_a_file_is_opened_is_not_followed(
    warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Between the question where it leads and the opening."""
    file, resolve = warehouse / "t/p=1/a", os.path.realpath
    (tmp_path / "secret/a").write_text("sesame", encoding="utf-8")
    sources = SourceRoots.of([f"file:{warehouse}"], {})
    sources.check(f"file:{file}", "the file")

    def swapped(path: str) -> str:
        real = resolve(path)
        if real == str(file):
            place = file if kind == "file" else file.parent
            place.rename(tmp_path / "away")
            place.symlink_to(tmp_path / ("secret/a" if kind == "file" else "secret"))
        return real

    monkeypatch.setattr("airflow_hive_federation.storage.sources.os.path.realpath", swapped)
    with (
        pytest.raises(SourceNotAllowedError, match="became a link"),
        sources.opened(f"file:{file}") as opened,
    ):
        opened.read()


def test_a_pipe_is_not_waited_for(warehouse: Path) -> None:
    os.mkfifo(warehouse / "t/pipe")
    sources = SourceRoots.of([f"file:{warehouse}"], {})
    with pytest.raises(SourceNotAllowedError, match="no file"), sources.opened(f"file:{warehouse}/t/pipe"):
        pass


def test_a_file_that_is_gone_is_named(warehouse: Path) -> None:
    sources = SourceRoots.of([f"file:{warehouse}"], {})
    with pytest.raises(FileVanishedError, match="t/none"), sources.opened(f"file:{warehouse}/t/none"):
        pass


def test_a_rewritten_file_is_asked_for_again_before_it_is_published(warehouse: Path, tmp_path: Path) -> None:
    """A rewrite opens the file by name."""
    file = warehouse / "t/p=1/a"

    def rewrite(source: str, target: str, visible: str, options: object) -> None:
        Path(target.removeprefix("file:")).write_text("sesame", encoding="utf-8")
        file.unlink()
        file.symlink_to(tmp_path / "secret/key")

    item = CopyItem(
        source=f"file:{file}", target=f"file:{tmp_path}/target/a", size_bytes=4, visible_write_ids="d.t:1:1::"
    )
    with pytest.raises(SourceNotAllowedError):
        copy_file(item, CopySettings(sources=settings(warehouse).sources, rewrite=rewrite))  # type: ignore[arg-type]
    assert not list((tmp_path / "target").iterdir())
