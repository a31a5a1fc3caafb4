"""A take-over ends the load that was copied, without the source."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_hive_federation.errors import FailoverError
from airflow_hive_federation.model.files import CopyItem, CopyOutcome
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import DumpKind
from airflow_hive_federation.replication.take_over import is_copied, is_latest, nothing_to_copy
from airflow_hive_federation.storage.digests import digest_file
from airflow_hive_federation.storage.plan_files import write_bound_plan, write_records
from tests.support.dumps import manifest


@pytest.mark.parametrize("hidden", ["", "_hive_federation/"])
def test_a_load_with_a_file_of_a_streaming_batch_is_copied(tmp_path: Path, hidden: str) -> None:
    """Its plan lists the file at each run; an earlier run may have copied it to a hidden directory."""
    dump = DumpDirectory(f"file:{tmp_path}/dump")
    place, outcomes = tmp_path / "t" / "delta_0000001_0000004" / "bucket_00000", f"{dump.uri}/load/outcomes"
    place.parent.mkdir(parents=True)
    place.write_bytes(b"rows")
    item = CopyItem(
        source="file:/source/bucket_00000",
        target=f"file:{place}",
        size_bytes=5000,
        visible_write_ids="d.t:4:3:3,4:",
    )
    plan, _ = write_bound_plan(f"{dump.uri}/load/copy_plan.jsonl", [item])
    copy = nothing_to_copy(None)
    assert not is_copied(dump)
    with pytest.raises(FailoverError, match=r"lists were copied, and are gone"):
        copy(plan, outcomes)
    outcome = CopyOutcome(
        target=f"file:{tmp_path}/t/{hidden}delta_0000001_0000004/bucket_00000",
        size_bytes=place.stat().st_size,
        digest=digest_file(item.target).digest,
        copied=True,
    )
    write_records(f"{outcomes}/run.jsonl", [outcome])
    assert is_copied(dump)
    copy(plan, outcomes)
    place.write_bytes(bytes(place.stat().st_size))
    with pytest.raises(FailoverError, match=r"lists were copied, and are gone"):
        copy(plan, outcomes)
    place.unlink()
    with pytest.raises(FailoverError, match=r"lists were copied, and are gone"):
        copy(plan, outcomes)


def test_the_last_load_is_the_one_that_may_be_ended(tmp_path: Path) -> None:
    """The user, the policy and an earlier version of it may write the directory of dumps differently."""

    def dump(name: str, *begun: DumpDirectory) -> DumpDirectory:
        made = DumpDirectory((tmp_path / name).as_uri())
        names = tuple(other.uri.replace("file:///", "file:/") for other in begun)
        made.finish_dump(manifest(kind=DumpKind.INCREMENT, begun=names))
        return made

    first = dump("1-5-6")
    second = dump("1-7-8", first)
    for unfinished in ([first, second], [second, first]):
        assert [is_latest(each, unfinished) for each in (first, second)] == [False, True]
    assert is_latest(first, [first])
