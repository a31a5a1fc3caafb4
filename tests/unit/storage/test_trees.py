from __future__ import annotations

from pathlib import Path

import pytest

from airflow_hive_federation.storage.filesystem import open_filesystem
from airflow_hive_federation.storage.trees import remove_tree


@pytest.mark.parametrize("name", ["plain", "*", "tree?", "[a-z]*", "t[r]ee1"])
@pytest.mark.parametrize("store", ["memory", "file"])
def test_a_name_is_no_pattern(store: str, name: str, tmp_path: Path) -> None:
    """A directory goes with all below it, and its neighbours stay, whatever the name matches."""
    root = f"file:{tmp_path}" if store == "file" else f"memory://here{tmp_path}"
    filesystem, path = open_filesystem(root)
    kept = [f"{path}/{neighbour}/below/file" for neighbour in ("tree1", "tree2")]
    for file in (f"{path}/{name}/file", f"{path}/{name}/below/deep/file", *kept):
        filesystem.makedirs(file.rpartition("/")[0], exist_ok=True)
        filesystem.pipe_file(file, b"x")
    remove_tree(filesystem, f"{path}/{name}")
    assert filesystem.find(path) == kept
    assert not filesystem.exists(f"{path}/{name}")
    with pytest.raises(FileNotFoundError):
        remove_tree(filesystem, f"{path}/{name}")
