from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.replication.dump.retention import forget_old_dumps
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.dumped_policy import DumpedPolicy
from airflow_hive_federation.replication.format.kinds import TableKind, TableWork
from airflow_hive_federation.replication.format.manifest import FinishedLoad, TableEntry
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.policy_changes import PolicyChanges, policy_changes, refuse_changed
from tests.support.dumps import manifest

POLICY = ReplicationPolicy(
    name="shop", source_database="shop", dump_root="/dumps", external_base="s3://bucket/base"
)
BEFORE = DumpedPolicy.of(POLICY)


@pytest.mark.parametrize(
    ("fields", "changes"),
    [
        ({}, PolicyChanges()),
        ({"external_base": "s3://bucket/base/"}, PolicyChanges()),
        ({"include_tables": "a|b", "bandwidth_bytes_per_s": 7, "into_existing": True}, PolicyChanges()),
        ({"external_base": "s3://bucket/other"}, PolicyChanges(external_base=True)),
        ({"external_base": None}, PolicyChanges(external_base=True)),
        ({"external_authority": True}, PolicyChanges(external_base=True)),
        ({"functions_root": "/dumps/functions/"}, PolicyChanges()),
        ({"functions_root": "/elsewhere"}, PolicyChanges(functions_root=True)),
        ({"dump_root": "/new"}, PolicyChanges(functions_root=True)),
        ({"dump_root": "/new", "functions_root": "/dumps/functions"}, PolicyChanges()),
    ],
)
def test_what_changed(fields: dict[str, object], changes: PolicyChanges) -> None:
    assert policy_changes(BEFORE, replace(POLICY, **fields)) == changes  # type: ignore[arg-type]


def test_another_source_is_another_policy() -> None:
    with pytest.raises(ConfigurationError, match=r"replicates database store now; .* was made of shop"):
        policy_changes(BEFORE, replace(POLICY, source_database="store", target_database="shop"))


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"external_base": "s3://bucket/other"}, "external_base"),
        ({"external_prefix": "s3://far/x"}, "external_base"),
        ({"external_authority": True}, "external_base"),
        ({"functions_root": "/elsewhere"}, "functions_root"),
        ({"dump_root": "/new"}, "functions_root"),
        ({"table_names": {"a": "b"}}, r"table_names \(of a, b\)"),
    ],
)
def test_a_dump_is_not_loaded_by_a_policy_that_puts_things_elsewhere(
    fields: dict[str, object], named: str
) -> None:
    of_before = manifest(policy=BEFORE)
    allowed = replace(POLICY, target_database="copy", preserve="p", into_existing=True, include_tables="a|b")
    refuse_changed("/dumps/shop/7-8-9", of_before, allowed)
    with pytest.raises(ConfigurationError, match=f"since dump /dumps/shop/7-8-9 was written: {named}"):
        refuse_changed("/dumps/shop/7-8-9", of_before, replace(POLICY, **fields))  # type: ignore[arg-type]


def test_functions_of_earlier_versions_move_to_the_directory_of_their_policy() -> None:
    """Jars of all policies shared a directory then, and manifests did not name it."""
    before = {name: value for name, value in BEFORE.to_json().items() if name != "functions_directory"}
    assert policy_changes(DumpedPolicy.from_json(before), POLICY) == PolicyChanges(functions_root=True)


def test_dumps_of_before_there_were_patterns() -> None:
    before = {name: value for name, value in BEFORE.to_json().items() if not name.endswith("_tables")}
    assert policy_changes(DumpedPolicy.from_json(before), POLICY) == PolicyChanges()


@pytest.mark.parametrize(
    ("include", "exclude", "replicated"),
    [
        ("", "", {"orders", "order_items", "tmp_a"}),
        ("order.*", "", {"orders", "order_items"}),
        ("orders|TMP_.*", "", {"orders", "tmp_a"}),
        ("", "tmp_.*", {"orders", "order_items"}),
        ("order.*", ".*items", {"orders"}),
        # The whole name has to match.
        ("order", "", set()),
    ],
)
def test_patterns(include: str, exclude: str, replicated: set[str]) -> None:
    policy = replace(POLICY, include_tables=include, exclude_tables=exclude)
    assert {name for name in ("orders", "order_items", "tmp_a") if policy.replicates(name)} == replicated


def test_a_pattern_that_is_none() -> None:
    with pytest.raises(ConfigurationError, match="include_tables is no regular expression"):
        replace(POLICY, include_tables="(")


@pytest.mark.parametrize("name", ["dumps", "[a]*?"])
def test_dumps_that_describe_nothing_any_more_go(tmp_path: Path, name: str) -> None:
    tmp_path = tmp_path / name
    policy = replace(POLICY, dump_root=f"file:{tmp_path}")

    def dump(name: str, *homes: str, loaded: str = policy.target_database) -> DumpDirectory:
        directory = DumpDirectory(f"{policy.directory}/{name}")
        directory.write_text("something", "x")
        entries = [
            TableEntry(
                name=f"t{number}",
                dump=f"{policy.directory}/{home}",
                work=TableWork.NOTHING,
                kind=TableKind.MANAGED,
            )
            for number, home in enumerate(homes)
        ]
        directory.finish_dump(manifest(*entries))
        if loaded:
            directory.finish_load(FinishedLoad(database=loaded))
        return directory

    for name in ("9-1", "10-12-3", "12-100-4", "100-101-5", "101-102-6"):
        dump(name)
    dump("1-2-3", loaded="")
    # The policy had another target database before, whose next increment goes on from there.
    dump("2-3-4", loaded="former")
    dump("3-4-5")
    (tmp_path / "shop/3-4-5/_finished_load").write_text("{", encoding="utf-8")
    current = dump("102-103-7", "10-12-3")
    (tmp_path / "shop" / "notes").mkdir()
    (tmp_path / "shop" / "notes" / "_finished_load").touch()
    gone = forget_old_dumps(policy, current, keep=2)
    assert [uri.rpartition("/")[2] for uri in gone] == ["9-1", "12-100-4"]
    assert sorted(path.name for path in (tmp_path / "shop").iterdir()) == [
        "1-2-3",
        "10-12-3",
        "100-101-5",
        "101-102-6",
        "102-103-7",
        "2-3-4",
        "3-4-5",
        "notes",
    ]
    assert forget_old_dumps(policy, current, keep=2) == []
