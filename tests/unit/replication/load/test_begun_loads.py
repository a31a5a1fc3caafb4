"""The loads of other dumps that have begun from a target's position."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.errors import CycleRunningError
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import DumpKind
from airflow_hive_federation.replication.format.unfinished import COPY_PLAN, begun_uris
from airflow_hive_federation.replication.replica.position import TargetPosition
from airflow_hive_federation.storage.publishing import write_atomically
from tests.support.dumps import POLICY, manifest

BEFORE = "file:/dumps/p/1-0"


def dump(root: Path, name: str, **fields: object) -> DumpDirectory:
    directory = DumpDirectory((root / name).as_uri())
    values: dict[str, Any] = {"kind": DumpKind.INCREMENT, "previous": BEFORE, **fields}
    directory.finish_dump(manifest(**values))
    return directory


@pytest.mark.parametrize("name", ["dumps", "[a-z]", "d*", "dump?"])
def test_loads_that_have_begun_below_any_directory(tmp_path: Path, name: str) -> None:
    policy = replace(POLICY, dump_root=f"file:{tmp_path}/{name}")
    assert begun_uris(policy) == ()
    for dump_name in ("1-2-3", "2-3-4", "3-4-5"):
        DumpDirectory(f"{policy.directory}/{dump_name}").write_text("events.jsonl", "")
    for dump_name in ("3-4-5", "1-2-3"):
        write_atomically(f"{policy.directory}/{dump_name}/{COPY_PLAN}", [b""])
    assert begun_uris(policy) == (f"{policy.directory}/1-2-3", f"{policy.directory}/3-4-5")


def refuse(directory: DumpDirectory, *begun: str) -> None:
    TargetPosition(last_id=1, dump=BEFORE, begun=begun).refuse_loads_since(POLICY, directory)


def test_load_that_has_begun_since_the_dump(tmp_path: Path) -> None:
    own, other = dump(tmp_path, "own"), dump(tmp_path, "other")
    later = dump(tmp_path, "later", previous="file:/dumps/p/2-0")
    refuse(own, own.uri, later.uri)
    with pytest.raises(CycleRunningError) as caught:
        refuse(own, own.uri, other.uri)
    assert caught.value.holder == other.uri


def test_uris_of_dumps_that_are_written_otherwise(tmp_path: Path) -> None:
    """The policy, a user and an earlier version of the policy may write the same directory differently."""
    other = dump(tmp_path, "other")
    own = dump(tmp_path, "own", begun=(other.uri.replace("file:///", "file:/"),))
    refuse(own, own.uri.replace("file:///", "file:/"), other.uri)


def test_loads_that_the_last_dump_allows_for_are_not_read_again(tmp_path: Path) -> None:
    own, killed = dump(tmp_path, "own"), dump(tmp_path, "killed")
    later = dump(tmp_path, "later", previous="file:/dumps/p/2-0")
    begun = ("file:/dumps/p/0-0", own.uri, killed.uri, later.uri)
    position = TargetPosition(
        last_id=1, dump=BEFORE, begun=begun, settled=frozenset({"file:/dumps/p/0-0", BEFORE})
    )
    assert [each.uri for each in position.unfinished(POLICY).dumps] == [own.uri, killed.uri]
    besides = own.uri.replace("file:///", "file:/")
    assert [each.uri for each in position.unfinished(POLICY, besides=besides).dumps] == [killed.uri]
