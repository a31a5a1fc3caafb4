"""Markers of Hive 3's compactor in a directory."""

from __future__ import annotations

from pathlib import Path

from airflow_hive_federation.acid.markers import chosen
from airflow_hive_federation.model.write_ids import ValidTxns, ValidWriteIds
from airflow_hive_federation.storage.listing import list_files


def test_a_base_that_the_compactor_is_still_writing_is_no_part_of_the_table(tmp_path: Path) -> None:
    for name, content in (
        ("base_0000002/bucket_00000", "rows"),
        ("base_0000002/_metadata_acid", '{"thisFileVersion": "0", "dataFormat": "compacted"}'),
        ("_tmp_c3c9b85a/base_0000003/bucket_00000", "rows"),
        ("_tmp_c3c9b85a/base_0000003/_metadata_acid", ""),
    ):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    uri = tmp_path.as_uri().replace("file://", "file:")
    write_ids = ValidWriteIds.parse("d.t:3:9223372036854775807::")
    state = chosen(uri, list_files(uri), write_ids, ValidTxns.everything(), None)
    assert [entry.path for entry in state.files()] == ["base_0000002/bucket_00000"]
