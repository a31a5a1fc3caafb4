"""The table of a verification shows names as they are."""

from __future__ import annotations

import pytest

from airflow_hive_federation.cli.report import print_report


def test_brackets_in_names_and_paths_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    row = {
        "name": "a[/b]",
        "kind": "full_acid",
        "files": 1,
        "size_bytes": 5,
        "source_rows": 1,
        "target_rows": 1,
        "digest_equal": True,
    }
    print_report({"tables": [row], "not_compared": {}}, title="file:/data/[prod]/dumps")
    printed = capsys.readouterr().out
    assert "file:/data/[prod]/dumps" in printed
    assert "a[/b]" in printed
    assert "equal" in printed
