"""The header of each file is checked when the file is read, and that of no other file."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_hive_federation.ingest.errors import InvalidColumn
from airflow_hive_federation.ingest.files import IngestRequest, ingest_files
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from tests.support.memory_metastore import MemoryMetastore
from tests.support.streaming import rows

QUOTES = pytest.mark.parametrize("quote", ['"', ""])


@pytest.fixture
def arriving(tmp_path: Path) -> Path:
    made = tmp_path / "in"
    made.mkdir()
    (made / "1.csv").write_text("a,b\n1,x\n")
    return made


def request(arriving: Path, quote: str) -> IngestRequest:
    return IngestRequest(table="d.plain", inputs=[str(arriving)], header=True, quote=quote)


@QUOTES
def test_an_empty_file_stops_no_other(
    settings: MetastoreSettings, tmp_path: Path, arriving: Path, quote: str
) -> None:
    (arriving / "2.csv").write_text("")
    report = ingest_files(settings, request(arriving, quote))
    assert (report.files, report.records) == (2, 1)
    (arriving / "3.csv").write_text("a,b\n3,z\n")
    assert ingest_files(settings, request(arriving, quote)).records == 1
    assert rows(tmp_path / "plain") == [(1, "x"), (3, "z")]


@QUOTES
def test_the_header_of_an_earlier_run_may_lack_a_column_that_was_added(
    settings: MetastoreSettings, metastore: MemoryMetastore, arriving: Path, quote: str
) -> None:
    assert ingest_files(settings, request(arriving, quote)).records == 1
    metastore.tables["d", "plain"].sd.cols.append(types.FieldSchema(name="c", type="int"))
    assert ingest_files(settings, request(arriving, quote)).files == 0
    (arriving / "2.csv").write_text("a,b,c\n2,y,7\n")
    assert ingest_files(settings, request(arriving, quote)).records == 1


@QUOTES
@pytest.mark.parametrize("place", [2, 3])
def test_a_wrong_header_is_named_and_nothing_of_its_file_is_written(
    settings: MetastoreSettings, tmp_path: Path, arriving: Path, quote: str, place: int
) -> None:
    for number in (2, 3):
        (arriving / f"{number}.csv").write_text("b,a\n5,6\n" if number == place else f"a,b\n{number},y\n")
    with pytest.raises(InvalidColumn, match=rf"{place}\.csv is not the table's.*another order") as caught:
        ingest_files(settings, request(arriving, quote))
    assert caught.value.facts["uri"] == f"file:{arriving}/{place}.csv"
    (arriving / f"{place}.csv").write_text("a,b\n6,z\n")
    assert ingest_files(settings, request(arriving, quote)).records == 3
    assert (6, "z") in rows(tmp_path / "plain")
    assert len(rows(tmp_path / "plain")) == 3
