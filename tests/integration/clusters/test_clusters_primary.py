"""Changes of the primary, moves of copies, what killed runs leave, and changes that meet each other."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.clusters.altering import alter_table_metadata, partitions_by_name
from airflow_hive_federation.clusters.catalog import MetastoreFacts, clusters_of
from airflow_hive_federation.clusters.copies.copying import copy_to_cluster, drop_copies
from airflow_hive_federation.clusters.locking import copies_lock, exclusive
from airflow_hive_federation.clusters.metadata import ClusterMetadata, Secondary, SourceMark, read_metadata
from airflow_hive_federation.clusters.moving import move_copies
from airflow_hive_federation.clusters.notes import notes_of
from airflow_hive_federation.clusters.placement import Session
from airflow_hive_federation.clusters.primary import change_primary
from airflow_hive_federation.clusters.registry import ClusterRegistry, read_registry
from airflow_hive_federation.clusters.running import LiveRouter
from airflow_hive_federation.clusters.sweeping import sweep_cluster
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import CopyRefusedError, PrimaryRefusedError, RoutingError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.storage.filesystem import local_path
from airflow_hive_federation.storage.plan_files import read_plan

DATABASE = "primaries"
MARK = SourceMark(metadata="0", files=0, size_bytes=0, content="0", listing="0")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("roots")


@pytest.fixture(scope="module")
def registry(root: Path) -> ClusterRegistry:
    properties = {name: {"fileSystem": f"{root}/{name}", "jobTracker": name} for name in ("C1", "C2", "C3")}
    return read_registry(
        {"hive.cluster.properties": properties, "hive.default.cluster.name": "C1"}, origin="the test"
    )


@pytest.fixture(scope="module", autouse=True)
def database(client: MetastoreClient) -> None:
    client.create_database(types.Database(name=DATABASE))


class Interrupted(BaseException):
    """The process was killed here."""


class Cut(MetastoreClient):
    """A client of a process that is killed before its nth change of a table or partition."""

    left = 0

    def call(self, method: str, *args: Any) -> Any:
        if method.startswith("alter_"):
            self.left -= 1
            if self.left < 0:
                raise Interrupted(method)
        return super().call(method, *args)


def copied(plan: str, outcomes: str) -> None:
    for item in read_plan(plan):
        target = Path(str(local_path(item.target)))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(str(local_path(item.source)), target)


def killed(plan: str, outcomes: str) -> None:
    copied(plan, outcomes)
    raise Interrupted


def make(client: MetastoreClient, root: Path, name: str, partitions: tuple[str, ...] = ()) -> str:
    """Make an external table of C1, with a file, or partitions with a file each."""
    place = root / "C1" / f"{DATABASE}.db" / name
    columns = [types.FieldSchema(name="line", type="string")]
    storage = types.StorageDescriptor(
        cols=columns,
        location=f"file:{place}",
        inputFormat="org.apache.hadoop.mapred.TextInputFormat",
        outputFormat="org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
        serdeInfo=types.SerDeInfo(serializationLib="org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"),
    )
    keys = [types.FieldSchema(name="p", type="string")] if partitions else []
    client.create_table(
        types.Table(
            dbName=DATABASE,
            tableName=name,
            tableType="EXTERNAL_TABLE",
            sd=storage,
            partitionKeys=keys,
            parameters={"EXTERNAL": "TRUE", "hive.cluster.primary": "C1"},
        )
    )
    for value in partitions:
        directory = place / f"p={value}"
        directory.mkdir(parents=True)
        (directory / "data").write_text(f"{name} {value}\n", encoding="utf-8")
        described = client.get_table(DATABASE, name).sd
        assert described is not None
        described.location = f"file:{directory}"
        client.add_partitions(
            [types.Partition(dbName=DATABASE, tableName=name, values=[value], sd=described, parameters={})]
        )
    if not partitions:
        place.mkdir(parents=True, exist_ok=True)
        (place / "data").write_text(f"{name}\n", encoding="utf-8")
    return f"{DATABASE}.{name}"


def state(client: MetastoreClient, table: str) -> dict[str, tuple[str, str | None, dict[str, str]]]:
    """Per object: the text of its files, its primary, and the text of the files of its copies."""
    described = client.get_table(*table.split("."))
    parts: dict[str, Any] = partitions_by_name(client, described) if described.partitionKeys else {}
    places = {}
    for name, described_part in {"": described, **parts}.items():
        metadata = read_metadata(described_part.parameters, table)
        assert metadata.next_primary is None
        texts = {cluster: text_of(copy.location) for cluster, copy in metadata.secondaries.items()}
        place = str(described_part.sd and described_part.sd.location)
        cluster = next(part for part in place.split("/") if part in {"C1", "C2", "C3"})
        places[name] = (f"{cluster}: {text_of(place)}", metadata.primary, texts)
    return places


def text_of(place: str) -> str:
    data = Path(str(local_path(place))) / "data"
    return data.read_text(encoding="utf-8").strip() if data.is_file() else ""


def fresh(client: MetastoreClient, registry: ClusterRegistry, name: str, cluster: str) -> bool:
    facts = MetastoreFacts(client, registry)
    facts_of_table = facts.table(DATABASE, name)
    assert facts_of_table is not None
    placements = (
        [partition.placement for partition in facts.partitions(facts_of_table)]
        if facts_of_table.is_partitioned
        else [facts_of_table.placement]
    )
    return not facts.check_files(DATABASE, name, cluster) and all(
        placement is not None and cluster in placement.readable for placement in placements
    )


@pytest.mark.parametrize("keep_former", [True, False])
@pytest.mark.parametrize("partitions", [(), ("a", "b")])
def test_a_change_of_the_primary_killed_anywhere_ends_the_same(
    source: EmbeddedMetastore,
    client: MetastoreClient,
    registry: ClusterRegistry,
    root: Path,
    partitions: tuple[str, ...],
    keep_former: bool,
) -> None:
    del source
    short = f"t_{len(partitions)}_{int(keep_former)}"
    name = make(client, root, short, partitions)
    copy_to_cluster(client, registry, name, "C2", copied)
    texts = [f"{short} {value}".strip() for value in partitions or [""]]
    kills = 0
    with Cut(client.settings) as cut:
        for number in range(9):
            # Each run gets one step further than the one before.
            cut.left = min(number, 1)
            try:
                report = change_primary(
                    cut, registry, name, "C2", keep_former=keep_former, former_older_than_s=-60.0
                )
            except Interrupted:
                kills += 1
                # Readers find all rows at each moment.
                places = {place for place, _, _ in raw_places(client, name)}
                assert all(text_of(place) for place in places)
                continue
            break
    assert kills == (3 if partitions else 1)
    assert (report.cluster, report.former) == ("C2", "C1")
    after = state(client, name)
    objects = [after[f"p={value}"] for value in partitions] or [after[""]]
    expected = [(f"C2: {text}", {"C1": text} if keep_former else {}) for text in texts]
    assert [(place, secondaries) for place, _, secondaries in objects] == expected
    assert after[""][1] == "C2"
    assert after[""][0].startswith("C2")
    left = list((root / "C1" / f"{DATABASE}.db" / short).rglob("data"))
    assert len(left) == (len(texts) if keep_former else 0)
    if keep_former:
        assert fresh(client, registry, short, "C1")
        dropped = drop_copies(client, registry, name, "C1", at_once=True)
        assert len(dropped.removed) == len(texts)
        assert not list((root / "C1" / f"{DATABASE}.db" / short).rglob("data"))
    assert change_primary(client, registry, name, "C2").moved == []


def raw_places(client: MetastoreClient, name: str) -> list[tuple[str, str, str]]:
    described = client.get_table(*name.split("."))
    if not described.partitionKeys:
        return [(str(described.sd and described.sd.location), "", "")]
    return [
        (str(partition.sd and partition.sd.location), "", "")
        for partition in partitions_by_name(client, described).values()
    ]


def test_a_primary_needs_whole_and_fresh_copies_that_nobody_uses(
    client: MetastoreClient, registry: ClusterRegistry, root: Path
) -> None:
    name = make(client, root, "refused", ("a", "b"))
    copy_to_cluster(client, registry, name, "C2", copied, partitions=["p=a"])
    before = raw_places(client, name)

    def refused(why: str, partition: str | None) -> None:
        with pytest.raises(PrimaryRefusedError, match=why) as caught:
            change_primary(client, registry, name, "C2")
        assert (caught.value.table, caught.value.partition) == (name, partition)
        assert raw_places(client, name) == before

    refused("p=b: it has no copy in C2", "p=b")
    copy_to_cluster(client, registry, name, "C2", copied)
    data = root / "C1" / f"{DATABASE}.db" / "refused" / "p=b" / "data"
    data.write_text("changed\n", encoding="utf-8")
    refused("p=b: its copy in C2 is stale", "p=b")
    copy_to_cluster(client, registry, name, "C2", copied)
    parts = partitions_by_name(client, client.get_table(DATABASE, "refused"))
    copy = read_metadata(parts["p=a"].parameters, name).secondaries["C2"]
    (Path(str(local_path(copy.location))) / "data").unlink()
    refused("p=a: its copy in C2 lacks files", "p=a")
    # Statements that need it get the router's error, with its name.
    with pytest.raises(RoutingError, match=f"{name}.* p=a is stale there"):
        LiveRouter(client=client, registry=registry).route(f"select * from {name}", Session(cluster="C2"))
    copy_to_cluster(client, registry, name, "C2", copied)
    for lock in (exclusive(name, partition="p=a", others_may_read=True), exclusive(copies_lock(name))):
        held = client.lock([lock]).lockid or 0
        refused("another process reads, writes or copies it", None)
        client.unlock(held)
    acid = client.get_table(DATABASE, "refused")
    acid.tableName, acid.partitionKeys = "refused_acid", []
    acid.parameters = {"transactional": "true", "transactional_properties": "insert_only"}
    acid.tableType = "MANAGED_TABLE"
    acid.sd.location = None  # type: ignore[union-attr]
    client.create_table(acid)
    with pytest.raises(PrimaryRefusedError, match="it is transactional"):
        change_primary(client, registry, f"{DATABASE}.refused_acid", "C2")


@pytest.mark.parametrize("partitions", [(), ("a", "b")])
def test_a_managed_table_that_the_metastore_places_stays_as_it_is(
    client: MetastoreClient, registry: ClusterRegistry, root: Path, partitions: tuple[str, ...]
) -> None:
    """Hive 4 keeps managed tables below the managed location of their database, and checks no partitions."""
    short = f"managed_{len(partitions)}"
    name = make(client, root, short, partitions)
    described = client.get_table(DATABASE, short)
    described.tableType = "MANAGED_TABLE"
    described.parameters = {
        key: value for key, value in (described.parameters or {}).items() if key != "EXTERNAL"
    }
    client.alter_table(DATABASE, short, described)
    assert client.get_table(DATABASE, short).tableType == "MANAGED_TABLE"
    copy_to_cluster(client, registry, name, "C2", copied)
    before = state(client, name)
    with pytest.raises(PrimaryRefusedError, match="keeps managed tables below the managed location"):
        change_primary(client, registry, name, "C2")
    assert state(client, name) == before
    assert [note for note in notes_of(registry.cluster("C1")) if note.table == name] == []


def test_a_write_of_one_who_takes_no_lock_is_reported(
    client: MetastoreClient, registry: ClusterRegistry, root: Path
) -> None:
    name = make(client, root, "written")
    copy_to_cluster(client, registry, name, "C2", copied)

    class Raced(MetastoreClient):
        def alter_table(self, *args: Any, **kwargs: Any) -> None:
            (root / "C1" / f"{DATABASE}.db" / "written" / "more").write_text("more", encoding="utf-8")
            super().alter_table(*args, **kwargs)

    former = root / "C1" / f"{DATABASE}.db" / "written"
    with (
        Raced(client.settings) as raced,
        pytest.raises(PrimaryRefusedError, match="another writer has"),
    ):
        change_primary(raced, registry, name, "C2", keep_former=False)
    # Each later run reports it, until it is repeated or moved; nothing is removed before.
    with pytest.raises(PrimaryRefusedError, match=f"former location file:{former}: more"):
        change_primary(client, registry, name, "C2", keep_former=False, former_older_than_s=-60.0)
    assert sorted(path.name for path in former.iterdir()) == ["data", "more"]
    described = client.get_table(DATABASE, "written").sd
    assert described is not None
    (former / "more").rename(Path(str(local_path(str(described.location)))) / "more")
    report = change_primary(client, registry, name, "C2", keep_former=False)
    assert (report.removed, list(report.left)) == ([], [f"file:{former}"])
    report = change_primary(client, registry, name, "C2", keep_former=False, former_older_than_s=-60.0)
    assert (report.removed, report.left) == ([f"file:{former}"], {})
    assert not former.exists()


def test_a_note_of_a_renamed_table_removes_nothing_for_a_later_one_of_its_name(
    client: MetastoreClient, registry: ClusterRegistry, root: Path
) -> None:
    name = make(client, root, "renamed", ("a",))
    copy_to_cluster(client, registry, name, "C2", copied)
    with Cut(client.settings) as cut:
        cut.left = 1
        with pytest.raises(Interrupted):
            change_primary(cut, registry, name, "C2")
    table = client.get_table(DATABASE, "renamed")
    before = table.createTime, table.id
    table.tableName = "renamed_first"
    client.alter_table(DATABASE, "renamed", table)
    renamed = client.get_table(DATABASE, "renamed_first")
    assert (renamed.createTime, renamed.id) == before
    assert all(before)
    # The later table is in C2 as a whole.
    renamed.tableName, renamed.partitionKeys = "renamed", []
    renamed.createTime = renamed.id = None
    renamed.parameters = {"EXTERNAL": "TRUE", "hive.cluster.primary": "C2"}
    assert renamed.sd is not None
    renamed.sd.location = f"file:{root}/C2/{DATABASE}.db/later"
    client.create_table(renamed)
    first = root / "C1" / f"{DATABASE}.db" / "renamed" / "p=a"
    for cluster in ("C1", "C2"):
        swept = sweep_cluster(client, registry, cluster, former_older_than_s=-60.0)
        assert not [directory for directory in swept.removed if "/renamed" in directory]
        if cluster == "C1":
            reason = f"its note is of another table that was named {name}; if that one was renamed"
            assert list(swept.left) == [f"file:{first}"]
            assert swept.left[f"file:{first}"].startswith(reason)
    report = change_primary(client, registry, name, "C2", former_older_than_s=-60.0)
    assert (report.removed, list(report.left)) == ([], [f"file:{first}"])
    assert (first / "data").is_file()


def test_files_of_a_partition_that_was_dropped_after_a_killed_run_stay(
    client: MetastoreClient, registry: ClusterRegistry, root: Path
) -> None:
    """Hive leaves the files of an external partition, where the partition lay."""
    name = make(client, root, "parts", ("a", "b", "c"))
    copy_to_cluster(client, registry, name, "C2", copied)
    with Cut(client.settings) as cut:
        cut.left = 1
        with pytest.raises(Interrupted):
            change_primary(cut, registry, name, "C2", keep_former=False)
    parts = partitions_by_name(client, client.get_table(DATABASE, "parts"))
    client.drop_partitions(DATABASE, "parts", ["p=a", "p=c"], delete_data=True)
    # A later partition of its name is another one.
    again = parts["p=c"]
    assert again.sd is not None
    again.sd.location, again.createTime = f"file:{root}/C2/{DATABASE}.db/parts/p=c", None
    again.parameters = {}
    client.add_partitions([again])
    report = change_primary(client, registry, name, "C2", keep_former=False, former_older_than_s=-60.0)
    first = root / "C1" / f"{DATABASE}.db" / "parts"
    assert (report.moved, report.removed) == (["p=b"], [f"file:{first}/p=b"])
    left = {
        f"file:{first}/p={value}": f"its partition p={value} was dropped during the change" for value in "ac"
    }
    # The copies that had become the directories of the dropped partitions, or were about to.
    copies = (root / "C2" / f"{DATABASE}.db" / "parts.copies").glob("p=[ac]/copy-*")
    of_copies = {f"file:{copy}": report.left.get(f"file:{copy}", "") for copy in copies}
    assert len(of_copies) == 2
    assert all("the copy of a partition that was dropped" in reason for reason in of_copies.values())
    assert report.left == {**left, **of_copies}
    sweep_cluster(client, registry, "C1", table=name, former_older_than_s=-60.0)
    assert sorted(path.parent.name for path in first.rglob("data")) == ["p=a", "p=c"]


def test_a_copy_that_is_dropped_meanwhile_does_not_become_the_primary(
    client: MetastoreClient, registry: ClusterRegistry, root: Path
) -> None:
    name = make(client, root, "dropped")
    copy_to_cluster(client, registry, name, "C2", copied)
    before = raw_places(client, name)

    class Raced(MetastoreClient):
        """A client beside which another one unsets the copy's parameters without a lock."""

        def lock(self, components: Any, **kwargs: Any) -> types.LockResponse:
            if not kwargs.get("txn_id"):
                now = client.get_table(DATABASE, "dropped")
                now.parameters = {
                    key: value for key, value in (now.parameters or {}).items() if ".secondary." not in key
                }
                client.alter_table(DATABASE, "dropped", now)
            return super().lock(components, **kwargs)

    with Raced(client.settings) as raced, pytest.raises(PrimaryRefusedError, match="just been altered"):
        change_primary(raced, registry, name, "C2")
    assert raw_places(client, name) == before


def test_copies_move_from_one_cluster_to_another(
    client: MetastoreClient, registry: ClusterRegistry, root: Path
) -> None:
    name = make(client, root, "moved", ("a", "b"))
    copy_to_cluster(client, registry, name, "C2", copied, partitions=["p=a"])
    with pytest.raises(Interrupted):
        move_copies(client, registry, name, "C2", "C3", run_copy=killed)
    assert state(client, name)["p=a"][2] == {"C2": "moved a"}
    report = move_copies(client, registry, name, "C2", "C3", run_copy=copied)
    assert (report.moved, report.removed, len(report.left)) == (["p=a"], [], 1)
    assert [state[2] for key, state in sorted(state(client, name).items()) if key] == [{"C3": "moved a"}, {}]
    assert move_copies(client, registry, name, "C2", "C3", run_copy=killed).moved == []
    for here, there in (("C1", "C2"), ("C3", "C3")):
        with pytest.raises(CopyRefusedError):
            move_copies(client, registry, name, here, there, run_copy=killed)


def test_what_killed_copies_leave_is_swept(
    client: MetastoreClient, registry: ClusterRegistry, root: Path
) -> None:
    name = make(client, root, "swept")
    with pytest.raises(Interrupted):
        copy_to_cluster(client, registry, name, "C3", killed)
    home = root / "C3" / f"{DATABASE}.db" / "swept.copies"
    (unnoted := home / "copy-unnoted").mkdir()
    ours = [note for note in notes_of(registry.cluster("C3")) if note.table == name]
    assert sorted(note.kind for note in ours) == ["copy", "plan"]

    def swept_meanwhile(plan: str, outcomes: str) -> None:
        copied(plan, outcomes)
        report = sweep_cluster(client, registry, "C3")
        assert set(report.left.values()) == {"a copy of it is being made"}

    # A run takes it up, and is not disturbed.
    (root / "C1" / f"{DATABASE}.db" / "swept" / "data").write_text("swept, changed\n", encoding="utf-8")
    copy_to_cluster(client, registry, name, "C3", swept_meanwhile)
    report = sweep_cluster(client, registry, "C3", former_older_than_s=-60.0)
    assert len([path for path in report.removed if f"{home}/copy-" in path]) == 1
    assert state(client, name)[""][2] == {"C3": "swept, changed"}
    assert unnoted.is_dir()
    assert [note.kind for note in notes_of(registry.cluster("C3")) if note.table == name] == ["copy"]
    assert sweep_cluster(client, registry, "C3", former_older_than_s=-60.0).removed == []
    # A statement is swept by its age.
    (routed,) = LiveRouter(client=client, registry=registry).script("select 1", Session(cluster="C3"))
    with routed.written(registry.cluster("C3")) as uri:
        assert sweep_cluster(client, registry, "C3").removed == []
        old = sweep_cluster(client, registry, "C3", statements_older_than_s=-60.0)
        assert old.removed == [uri.rpartition("/")[0]]
        Path(str(local_path(uri))).parent.mkdir()


@pytest.mark.parametrize("race", ["ours", "others"])
def test_changes_of_one_second_are_not_lost(
    client: MetastoreClient, registry: ClusterRegistry, root: Path, race: str
) -> None:
    name = make(client, root, f"raced_{race}")
    table = name.partition(".")[2]

    def adding(cluster: str) -> Callable[[ClusterMetadata], ClusterMetadata]:
        return lambda now: now.with_secondary(cluster, Secondary(location=f"file:/{cluster}", source=MARK))

    def add(cluster: str) -> None:
        with MetastoreClient(client.settings) as own:
            alter_table_metadata(own, own.get_table(DATABASE, table), adding(cluster))

    class Raced(MetastoreClient):
        """A client beside which another one alters the table in the second of the change before."""

        raced = False

        def alter_table(self, *args: Any, **kwargs: Any) -> None:
            if not self.raced:
                self.raced = True
                touch()
            super().alter_table(*args, **kwargs)

    def touch() -> None:
        now = client.get_table(DATABASE, table)
        parameters = {**(now.parameters or {}), "theirs": "1"}
        # As Hive does, so that the metastore sets the time.
        del parameters["transient_lastDdlTime"]
        now.parameters = parameters
        client.alter_table(DATABASE, table, now)

    if race == "ours":
        with ThreadPoolExecutor(4) as workers:
            list(workers.map(add, [f"X{number}" for number in range(4)]))
        metadata = read_metadata(client.get_table(DATABASE, table).parameters, name)
        assert set(metadata.secondaries) == {"X0", "X1", "X2", "X3"}
        return
    touch()
    with Raced(client.settings) as raced:
        alter_table_metadata(raced, raced.get_table(DATABASE, table), adding("X"))
    parameters = client.get_table(DATABASE, table).parameters or {}
    assert parameters["theirs"] == "1"
    assert "X" in read_metadata(parameters, name).secondaries


def test_a_cluster_that_is_gone_is_named(
    client: MetastoreClient, registry: ClusterRegistry, root: Path
) -> None:
    first, second = make(client, root, "of_gone"), make(client, root, "of_here")
    copy_to_cluster(client, registry, second, "C2", copied)
    gone = client.get_table(DATABASE, "of_gone")
    gone.parameters = {**(gone.parameters or {}), "hive.cluster.primary": "C9"}
    client.alter_table(DATABASE, "of_gone", gone)
    router = LiveRouter(client=client, registry=registry)
    with pytest.raises(RoutingError, match=f"C9, the cluster of {first}, is not configured"):
        router.route(f"select * from {first}", Session())
    with pytest.raises(PrimaryRefusedError, match="C9, is not configured"):
        change_primary(client, registry, first, "C2")
    # Two outputs with different primaries.
    change_primary(client, registry, second, "C2")
    third = make(client, root, "of_c1")
    script = f"from {second} insert into {third} select line insert into {second} select line"
    with pytest.raises(RoutingError, match=f"{third}|{second}") as caught:
        router.route(script, Session())
    assert {third, second} <= {str(output.table) for output in caught.value.decision.outputs}
    assert clusters_of(registry).default == "C1"
