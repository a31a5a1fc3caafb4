"""A target that is not ours, or was changed, is refused by name; what is identical can be adopted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import (
    ConfigurationError,
    DumpCorruptError,
    DumpIncompleteError,
    TargetChangedError,
    TargetNotOursError,
)
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.dump.drain import begin_drain
from airflow_hive_federation.replication.load.kept_out import KeptOut
from airflow_hive_federation.replication.replica.position import read_position
from airflow_hive_federation.storage.filesystem import local_path
from airflow_hive_federation.storage.plan_files import read_outcomes
from tests.support.kills import Case
from tests.support.small_source import DATABASE, commit_files, connected, make_table


@pytest.fixture
def case(small_source: EmbeddedMetastore, target: EmbeddedMetastore, tmp_path: Path) -> Iterator[Case]:
    case = Case(small_source, target, tmp_path)
    case.drop()
    yield case
    case.drop()


def test_a_database_that_is_not_ours_is_refused(case: Case) -> None:
    with connected(case.target) as client:
        client.create_database(types.Database(name=DATABASE))
        make_table(client, DATABASE, "theirs")
    with pytest.raises(TargetNotOursError, match="holds tables"):
        case.load()
    with connected(case.target) as client:
        assert client.list_tables(DATABASE) == ["theirs"]


def test_a_table_that_is_not_ours_is_named(case: Case) -> None:
    case.load()
    with connected(case.target) as client:
        make_table(client, DATABASE, "sneaked_in")
    with pytest.raises(TargetChangedError, match="sneaked_in"):
        case.load()


def test_a_changed_column_is_named(case: Case) -> None:
    case.load()
    with connected(case.target) as client:
        table: Any = client.get_table(DATABASE, "ext")
        table.sd.cols[1].name = "renamed"
        client.alter_table(DATABASE, "ext", table)
    with pytest.raises(TargetChangedError, match=r"(?s)ext: storage\.cols.*renamed"):
        case.load()


def test_a_write_on_the_target_is_named(case: Case) -> None:
    case.load()
    with connected(case.target) as client:
        commit_files(client, DATABASE, "acid")
    with pytest.raises(TargetChangedError, match="acid: highest write id"):
        case.load()


def test_a_dropped_partition_is_named(case: Case) -> None:
    case.load()
    with connected(case.target) as client:
        client.drop_partitions(DATABASE, "acid", ["p=one"], delete_data=True)
    with pytest.raises(TargetChangedError, match="p=one: partition"):
        case.load()


def test_what_is_identical_is_adopted_and_not_copied_again(case: Case) -> None:
    case.load()
    with connected(case.target) as client:
        _disown(client)
    other = Case(case.source, case.target, Path(local_path(case.policy.dump_root) or "") / "adopting")
    with pytest.raises(TargetNotOursError):
        other.load()
    other.policy = type(other.policy)(**{**other.policy.to_json(), "into_existing": True})
    other.load()
    outcomes = read_outcomes(f"{other.policy.directory}/{other.start.dump_name}/load/outcomes")
    assert outcomes
    assert not any(outcome.copied for outcome in outcomes.values())
    with connected(case.source) as source, connected(case.target) as client:
        assert client.get_database(DATABASE).parameters["repl.last.id"] == str(other.start.event_id)  # type: ignore[index]
        # The next increment continues from each of these tables.
        position = read_position(client, other.policy)
        assert {*position.tables} == {"acid", "ext", "seen"}
        reached = source.get_valid_write_ids([f"{DATABASE}.acid"])[f"{DATABASE}.acid"].writeIdHighWaterMark
        assert position.tables["acid"].high_watermark == reached


def test_write_ids_that_the_source_has_not_given_out_are_not_adopted(case: Case) -> None:
    """Their rows would appear later, in the place of the source's."""
    case.load()
    with connected(case.target) as client:
        _disown(client)
        write_id = commit_files(client, DATABASE, "acid", ["p=one"])
    other = Case(case.source, case.target, Path(local_path(case.policy.dump_root) or "") / "adopting")
    other.policy = type(other.policy)(**{**other.policy.to_json(), "into_existing": True})
    with pytest.raises(TargetChangedError) as refused:
        other.load()
    file, numbers = refused.value.differences
    assert f"/acid/p=one/delta_{write_id:07d}" in file
    assert numbers == f"acid: write ids up to {write_id}, where the source has {write_id - 1}"
    assert "drop these tables on the target" in refused.value.remedy


def _disown(client: MetastoreClient) -> None:
    """Turn a replica into somebody's own copy: the same tables and files, no marks."""
    for name in ("acid", "ext", "seen"):
        table: Any = client.get_table(DATABASE, name)
        table.parameters = {
            key: value
            for key, value in table.parameters.items()
            if "repl" not in key and "federation" not in key
        }
        client.alter_table(DATABASE, name, table)
    database: Any = client.get_database(DATABASE)
    database.parameters = {}
    client.alter_database(DATABASE, database)


def test_an_external_table_without_a_base_is_refused_before_anything_is_copied(case: Case) -> None:
    case.policy = type(case.policy)(**{**case.policy.to_json(), "external_base": None})
    with pytest.raises(ConfigurationError, match="external_base"):
        case.load()
    with connected(case.target) as client:
        assert client.list_tables(DATABASE) == []


def test_a_damaged_dump_publishes_nothing(case: Case) -> None:
    dump = Path(local_path(case.dump()) or "")
    (dump / "tables/acid.json").write_text("{", encoding="utf-8")
    with pytest.raises(DumpCorruptError, match=r"tables/acid\.json"):
        case.load()
    # Each document is read before anything is made.
    with connected(case.target) as client:
        assert DATABASE not in client.get_all_databases()


def test_a_file_that_vanishes_is_named_and_the_next_dump_goes_on(case: Case, tmp_path: Path) -> None:
    """The next load removes files that the abandoned load copied and the next dump does not list."""
    external = case.source.external_warehouse / f"{DATABASE}_ext"
    (external / "gone").write_text("was here", encoding="utf-8")
    case.dump()
    with connected(case.source) as client:
        partition: Any = next(iter(client.iter_partitions(DATABASE, "acid", names=["p=one"])))
    victim = next(Path(local_path(partition.sd.location) or "").glob("delta_*/bucket_*"))
    content = victim.read_bytes()
    left_behind = Path(f"{case.target.external_warehouse}/base/{external}/gone")
    left_behind.parent.mkdir(parents=True, exist_ok=True)
    left_behind.write_text("was here", encoding="utf-8")  # copied before the load stopped
    victim.unlink()
    try:
        with pytest.raises(DumpIncompleteError, match=victim.name):
            case.load()
    finally:
        victim.write_bytes(content)
        (external / "gone").unlink()
    with connected(case.source) as client:
        case.start = begin_drain(client, DATABASE)
    case.load()
    assert not left_behind.exists()
    assert (left_behind.parent / "data").exists()


def test_a_second_dump_of_an_unchanged_source_is_loaded_already(case: Case) -> None:
    case.load()
    with connected(case.source) as client:
        case.start = begin_drain(client, DATABASE)
    case.load()


def test_a_bootstrap_is_not_loaded_over_a_published_one(case: Case) -> None:
    case.load()
    with connected(case.source) as client:
        make_table(client, DATABASE, "afterwards")
        case.start = begin_drain(client, DATABASE)
    try:
        with pytest.raises(TargetChangedError, match=r"(?s)published at event.*afterwards"):
            case.load()
    finally:
        with connected(case.source) as client:
            client.drop_table(DATABASE, "afterwards", delete_data=True)


def test_readers_of_a_new_target_wait_for_no_load_of_an_earlier_one(case: Case) -> None:
    """A client of the metastore has dropped the target, which leaves the lock of a killed load."""
    case.load()
    with connected(case.target) as client:
        KeptOut(client, case.policy, "acid").lock(lambda: None)
        client.drop_database(DATABASE, delete_data=True, cascade=True)
        assert [lock.tablename for lock in client.show_locks(database=DATABASE)] == ["acid"]
        case.load()
        assert client.show_locks(database=DATABASE) == []
