"""A statement reads a copy of a transactional table only as long as the copy has all its files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, cast

import pytest

from airflow_hive_federation.errors import FileVanishedError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.content_marks import content_mark
from airflow_hive_federation.model.write_ids import ValidTxns, ValidWriteIds
from airflow_hive_federation.spark.acid_tables import acid_frames
from airflow_hive_federation.storage.listing import list_files
from airflow_hive_federation.tables.read.acid_description import (
    DescribedDirectory,
    DescribedRead,
    DescribedTable,
)

NO_SPARK = cast("Any", None)


class PlannedError(Exception):
    """The reader got beyond the check of the files."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    bucket = tmp_path / "t" / "delta_0000001_0000001_0000" / "bucket_00000"
    bucket.parent.mkdir(parents=True)
    bucket.write_bytes(b"rows")
    # Hive leaves such directories, which a listing of a copy's content does not have.
    (tmp_path / "t" / "delta_0000002_0000002_0000").mkdir()
    return tmp_path / "t"


def described(location: str, content: str | None) -> object:
    storage = types.StorageDescriptor(location=location, cols=[types.FieldSchema(name="id", type="int")])
    read = DescribedRead(
        write_ids=ValidWriteIds.parse("d.t:7:5:5:"),
        txns=ValidTxns.everything(),
        directories=(DescribedDirectory(location=location, content=content),),
    )
    table = types.Table(dbName="d", tableName="t", sd=storage, parameters={"transactional": "true"})
    return DescribedTable(table=table, reads=(read,)).to_json()


@pytest.mark.parametrize("gone", ["delta_0000001_0000001_0000/bucket_00000", "."])
def test_a_copy_that_has_lost_files_is_not_read(
    gone: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows(*given: Any, **settings: Any) -> Any:
        raise PlannedError

    monkeypatch.setattr("airflow_hive_federation.spark.acid_tables.visible_rows", rows)
    location = f"file:{place}"
    copy = described(location, content_mark(list_files(location)))
    with pytest.raises(PlannedError):
        acid_frames(NO_SPARK, [copy])
    shutil.rmtree(place / gone) if (place / gone).is_dir() else (place / gone).unlink()
    with pytest.raises(FileVanishedError, match="does not hold exactly the files of the copy"):
        acid_frames(NO_SPARK, [copy])
    # The files of a primary are those of the snapshot, whatever is there.
    with pytest.raises(PlannedError):
        acid_frames(NO_SPARK, [described(location, None)])
