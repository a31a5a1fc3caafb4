"""The examples of the documentation run as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

#: What each prints last.
PRINTED = {
    "bootstrap.py": "quince",
    "remote_table.py": "north quince",
    "streaming_ingest.py": "14 val14 Asia India",
}
EXAMPLES = sorted((Path(__file__).parents[3] / "docs" / "examples").glob("*.py"))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", EXAMPLES, ids=[path.name for path in EXAMPLES])
def test_example_runs(path: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(path)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert PRINTED[path.name] in done.stdout
