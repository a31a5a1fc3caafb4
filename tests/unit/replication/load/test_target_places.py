"""Tables of one directory: none removes what another has listed, and nothing is copied twice."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.errors import LocationConflictError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.replication.dump.contents import is_published
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.files import DataLocation, VisibleFile
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.format.manifest import TableEntry
from airflow_hive_federation.replication.format.tables import TableDocument
from airflow_hive_federation.replication.load.copying import plan_copy
from airflow_hive_federation.replication.load.target_files import files_there
from airflow_hive_federation.replication.load.target_places import TargetPlaces
from airflow_hive_federation.replication.metadata import external_tables
from airflow_hive_federation.replication.metadata.external_tables import ExternalEntry
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.external_claims import claim_external
from airflow_hive_federation.replication.replica.layout import TargetLayout
from airflow_hive_federation.storage.listing import list_files
from tests.support.dumps import manifest


@pytest.fixture
def layout(tmp_path: Path) -> TargetLayout:
    policy = ReplicationPolicy(
        name="shop",
        source_database="shop",
        dump_root=f"file:{tmp_path}/dumps",
        external_base=f"file:{tmp_path}/base",
        external_prefix="file:/lake",
    )
    return TargetLayout(policy=policy, managed=f"file:{tmp_path}/warehouse/shop.db")


def write_dump(uri: str, tables: dict[str, dict[str, int]], **earlier: str) -> DumpDirectory:
    """A dump of external tables: location → sizes of the files that its listing had.

    :param earlier: tables that the dump of another URI describes.
    """
    dump = DumpDirectory(uri)
    entries = [TableEntry(name=name, kind=TableKind.EXTERNAL, dump=home) for name, home in earlier.items()]
    written = []
    for key, files in tables.items():
        name, _, location = key.partition("|")
        table = types.Table(tableName=name, sd=types.StorageDescriptor(location=location))
        places = (DataLocation(partition="", location=location),)
        dump.write_table(TableDocument(table=table, kind=TableKind.EXTERNAL, places=places))
        listed = (
            VisibleFile(
                directory=location, partition="", path=path, target_path=path, size_bytes=size, modified_ns=0
            )
            for path, size in files.items()
        )
        dump.write_files(name, listed)
        written.append(ExternalEntry(table=name, location=location))
        entries.append(TableEntry(name=name, kind=TableKind.EXTERNAL, dump=uri))
    dump.write_text(external_tables.FILE_NAME, external_tables.to_text(written))
    dump.finish_dump(manifest(*entries))
    return DumpDirectory(uri)


def put(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("x", encoding="utf-8")


@pytest.mark.parametrize("inner_is_concerned", [True, False])
def test_no_table_removes_what_another_has_listed(
    layout: TargetLayout, tmp_path: Path, inner_is_concerned: bool
) -> None:
    """A file that came, or went, between the listings of two tables."""
    outer = {"outer|file:/lake/d": {"own": 1, "sub/both": 1, "sub/gone_from_inner": 1}}
    inner = {"inner|file:/lake/d/sub": {"both": 1, "gone_from_outer": 1}}
    if inner_is_concerned:
        dump = write_dump(f"file:{tmp_path}/dumps/shop/2-3-4", {**outer, **inner})
    else:
        home = write_dump(f"file:{tmp_path}/dumps/shop/1-2-3", inner)
        dump = write_dump(f"file:{tmp_path}/dumps/shop/2-3-4", outer, inner=home.uri)
    put(tmp_path / "base" / "d", "own", "surplus", "sub/both", "sub/gone_from_outer", "sub/gone_from_inner")
    put(tmp_path / "base" / "d", "sub/surplus_too")
    places = TargetPlaces(dump, layout)
    documents = {
        name: dump.table(name) for name in ("outer", "inner") if name == "outer" or inner_is_concerned
    }
    copies = {
        name: plan_copy(
            dump, layout, documents[name], there=files_there(layout, documents[name]), visible=None, before={}
        )
        for name in documents
    }
    assert f"file:{tmp_path}/base/d/sub/gone_from_outer" in copies["outer"].extraneous
    places.spare_shared(copies)
    assert copies["outer"].extraneous == [
        f"file:{tmp_path}/base/d/sub/surplus_too",
        f"file:{tmp_path}/base/d/surplus",
    ]
    if inner_is_concerned:
        assert copies["inner"].extraneous == [f"file:{tmp_path}/base/d/sub/surplus_too"]


def test_a_file_that_two_tables_list_is_copied_once(layout: TargetLayout, tmp_path: Path) -> None:
    """They may spell it in other ways, and see it grow in between."""
    tables: dict[str, dict[str, int]] = {"a|file:/lake/d": {}, "b|file:///lake/d/": {}, "c|file:/lake/c": {}}
    places = TargetPlaces(write_dump(f"file:{tmp_path}/dumps/shop/2-3-4", tables), layout)
    items = [
        CopyItem(source=source, target=f"file:{tmp_path}{target}", size_bytes=size)
        for source, target, size in (
            ("file:/lake/d/f", "/base/d/f", 1),
            ("file:///lake/d//f", "/base//d/f", 2),
            ("file:/lake/c/f", "/base/c/f", 1),
        )
    ]
    assert list(places.each_once(items)) == [items[0], items[2]]


def test_tables_of_earlier_dumps_take_part(layout: TargetLayout, tmp_path: Path) -> None:
    home = write_dump(f"file:{tmp_path}/dumps/shop/1-2-3", {"a|file:/lake/events": {}, "b|file:/lake/b": {}})
    dump = write_dump(f"file:{tmp_path}/dumps/shop/2-3-4", {"c|file:/events": {}}, a=home.uri)
    with pytest.raises(LocationConflictError) as refused:
        TargetPlaces(dump, layout)
    assert refused.value.tables == ["a", "c"]
    # What left the policy meanwhile takes no part.
    TargetPlaces(write_dump(f"file:{tmp_path}/dumps/shop/3-4-5", {"c|file:/b": {}}, a=home.uri), layout)


def test_a_managed_table_that_is_dropped_takes_its_directory_with_it(
    layout: TargetLayout, tmp_path: Path
) -> None:
    there = f"file:{tmp_path}/warehouse/shop.db/old/x"
    layout = TargetLayout(
        policy=ReplicationPolicy(
            name="shop", source_database="shop", dump_root=f"file:{tmp_path}/dumps", external_base="file:/"
        ),
        managed=layout.managed,
    )
    dump = write_dump(f"file:{tmp_path}/dumps/shop/2-3-4", {f"x|{there}": {}})
    TargetPlaces(dump, layout)
    with pytest.raises(LocationConflictError, match="table old"):
        TargetPlaces(dump, layout, leaving=["old"])


@pytest.mark.parametrize("adopting", [False, True])
def test_a_load_owns_the_directories_of_its_target_alone(
    layout: TargetLayout, tmp_path: Path, adopting: bool
) -> None:
    """A policy that had another target database, or adopts one, has made files that are not this load's."""
    layout = replace(layout, policy=replace(layout.policy, into_existing=adopting))
    dump = write_dump(f"file:{tmp_path}/dumps/shop/1-2-3", {"t|file:/lake/t": {}})
    places = TargetPlaces(dump, layout)
    assert places.owns(f"file:{tmp_path}/base/t/p=1/f")
    for neighbour in (
        "base/t2/f",
        "base/f",
        "warehouse/shop.db2/t/f",
        "dumps/shop/1-2-3/f",
        "dumps/functions/q/shop/f",
    ):
        assert not places.owns(f"file:{tmp_path}/{neighbour}")
    for shared in ("warehouse/shop.db/given_up/f", "dumps/functions/shop/shop/f.jar"):
        assert places.owns(f"file:{tmp_path}/{shared}") is not adopting
    everything = replace(layout.policy, target_database="default")
    places = TargetPlaces(dump, TargetLayout(policy=everything, managed=f"file:{tmp_path}/warehouse"))
    assert not places.owns(f"file:{tmp_path}/warehouse/other.db/t/f")


def test_the_claims_in_external_base_are_no_files_of_a_table_there(
    layout: TargetLayout, tmp_path: Path
) -> None:
    """The load would otherwise remove them, and the replica's own replicas would copy them."""
    dump = write_dump(f"file:{tmp_path}/dumps/shop/1-2-3", {"t|file:/lake": {"own": 1}})
    claim_external("one", layout.policy, TargetPlaces(dump, layout)._external)
    put(tmp_path / "base", "own", "surplus", "_other/f")
    document = dump.table("t")
    there = files_there(layout, document)
    assert {uri.rpartition("/base/")[2] for uri in there} == {"own", "surplus", "_other/f"}
    paths = [entry.path for entry in list_files(f"file:{tmp_path}/base") if is_published(entry.path)]
    assert paths == ["_other/f", "own", "surplus"]


class Target:
    """The one call by which a load learns whose target it is."""

    def call(self, method: str) -> str:
        assert method == "get_metastore_db_uuid"
        return "one"


def test_a_load_gives_up_the_directories_of_tables_that_left(layout: TargetLayout, tmp_path: Path) -> None:
    target: Any = Target()
    before = TargetPlaces(
        write_dump(f"file:{tmp_path}/dumps/shop/1-2-3", {"a|file:/lake/a": {}, "b|file:/lake/b": {}}), layout
    )
    claim_external("one", layout.policy, before._external)
    recorded = before.recorded({})
    claim = tmp_path / "base/_hive_federation_targets/one@shop.json"
    less = TargetPlaces(write_dump(f"file:{tmp_path}/dumps/shop/2-3-4", {"a|file:/lake/a": {}}), layout)
    less.release(target, recorded)
    assert json.loads(claim.read_text(encoding="utf-8"))["roots"] == [f"file:{tmp_path}/base/a"]
    nothing = TargetPlaces(write_dump(f"file:{tmp_path}/dumps/shop/3-4-5", {}), layout)
    nothing.release(target, {})  # external_base is left alone
    assert claim.exists()
    nothing.release(target, less.recorded({}))
    assert not claim.exists()
