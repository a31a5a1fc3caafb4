"""Copying bucket files that real Hive streamed into, with rows of an aborted write id between others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyarrow import orc

from airflow_hive_federation.acid.rewrite import rewrite_file
from airflow_hive_federation.errors import FileVanishedError
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.storage.copying import CopySettings, copy_file

GOLDEN = Path(__file__).parents[2] / "golden"
SETTINGS = CopySettings(rewrite=rewrite_file)


def make_item(table: str, delta: str, target: Path, grown_bytes: int = 0) -> CopyItem:
    source = GOLDEN / table / delta / "bucket_00000"
    facts = json.loads((GOLDEN / f"{table}.json").read_text())
    return CopyItem(
        source=f"file:{source}",
        target=f"file:{target}",
        size_bytes=source.stat().st_size - grown_bytes,
        visible_write_ids=facts["write_ids"],
    )


@pytest.mark.parametrize(
    ("table", "delta"),
    [("acid_streamed", "delta_0000001_0000004"), ("acid_unfinished", "delta_0000001_0000003")],
)
def test_aborted_rows_stay_behind(table: str, delta: str, tmp_path: Path) -> None:
    # The listing may be older than the file: a writer appends to it.
    item = make_item(table, delta, tmp_path / delta / "bucket_00000", grown_bytes=1)
    outcome = copy_file(item, SETTINGS)
    made = tmp_path / delta / "bucket_00000"
    write_ids = set(orc.ORCFile(made).read(["currentTransaction"])["currentTransaction"].to_pylist())
    shown = json.loads((GOLDEN / f"{table}.json").read_text())["rows_with_id"]
    # Write id 5 of the streamed table is in a delta of its own.
    assert write_ids == {json.loads(row[0])["writeid"] for row in shown} - {5}
    assert outcome.size_bytes == made.stat().st_size
    # Rewriting is deterministic, so a rerun without a record finds the identical file.
    assert not copy_file(item, SETTINGS).copied
    assert [path.name for path in made.parent.iterdir()] == ["bucket_00000"]


def test_a_file_that_shrank_is_not_the_listed_one(tmp_path: Path) -> None:
    item = make_item("acid_streamed", "delta_0000001_0000004", tmp_path / "t", grown_bytes=-1)
    with pytest.raises(FileVanishedError, match="changed while it was read"):
        copy_file(item, SETTINGS)


def test_a_file_without_a_commit_yet_stays_empty(tmp_path: Path) -> None:
    source = tmp_path / "source" / "bucket_00000"
    source.parent.mkdir()
    source.write_bytes(b"ORC and what was not committed")
    source.with_name("bucket_00000_flush_length").write_bytes(bytes(8))
    item = CopyItem(
        source=f"file:{source}",
        target=f"file:{tmp_path}/target/bucket_00000",
        size_bytes=0,
        visible_write_ids="d.t:1:9223372036854775807::",
    )
    assert copy_file(item, SETTINGS).size_bytes == 0
    assert (tmp_path / "target" / "bucket_00000").read_bytes() == b""
