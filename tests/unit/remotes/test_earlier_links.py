"""Links that hold what is refused today, or that cannot be read: they stop nothing but themselves."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from airflow_hive_federation.errors import ConfigurationError, RemoteError, RemoteUnsupportedError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.remotes import probes
from airflow_hive_federation.remotes.links import EVENT, PROPERTIES, VIA
from airflow_hive_federation.remotes.session import Remotes
from airflow_hive_federation.remotes.statement import Kind, Name
from tests.support.catalog_contract import DATABASE, tables
from tests.support.memory_catalog import MemoryCatalog
from tests.support.memory_metastore import MemoryMetastore

OLD = Name(database="default", table="old")
GOOD = Name(database="default", table="good")
MIRROR = Name(database="mirror")
URIS = {"hive.metastore.uris": "thrift://127.0.0.1:1"}
REFUSED = {
    "a secret": ("thrift", {**URIS, "javax.jdo.option.ConnectionPassword": "Planted"}, "ConnectionPassword"),
    "a secret in a URI": ("thrift", {"hive.metastore.uris": "thrift://ann:Planted@127.0.0.1:1"}, "secret"),
    "an endpoint": ("glue", {"aws.glue.endpoint": "http://127.0.0.1:1"}, "endpoint"),
    "a file": (
        "ssh",
        {**URIS, "ssh.tunnel.route": "ann@127.0.0.1", "ssh.tunnel.private.keys": "/elsewhere/key"},
        "/elsewhere/key",
    ),
    "a catalog": ("iceberg", {"iceberg.catalog.uri": "postgresql://127.0.0.1/db"}, "without a connection"),
    "a factory": ("gone", {}, "There is no factory"),
}


@pytest.fixture
def links(remotes: Remotes, near: MemoryMetastore) -> Remotes:
    """Two links, ``old`` and ``good``."""
    remotes.run(f"CREATE REMOTE TABLE good CONNECTED TO {DATABASE}.parted VIA 'far'")
    remotes.run(f"CREATE REMOTE TABLE old CONNECTED TO {DATABASE}.parted VIA 'far'")
    near.calls.clear()
    return remotes


@pytest.mark.parametrize(("via", "properties", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_stored_properties_that_are_refused_today(
    links: Remotes, near: MemoryMetastore, far: MemoryCatalog, via: str, properties: Any, reason: str
) -> None:
    near.tables["default", "old"].parameters |= {VIA: via, PROPERTIES: json.dumps(properties)}
    far.put_table(tables("file:/moved")["parted"][0])
    before = copy.deepcopy((near.tables, near.partitions))
    for call in (
        lambda: links.refresh(Kind.TABLE, OLD, whole=True),
        lambda: links.run("DESCRIBE old"),
        lambda: probes.look(links, Kind.TABLE, OLD),
    ):
        with pytest.raises(ConfigurationError, match=rf"Remote table default\.old: .*{reason}") as caught:
            call()
        assert "DROP REMOTE TABLE default.old" in caught.value.remedy
        assert caught.value.remote == "default.old"
        assert "Planted" not in str(caught.value)
    assert near.writes == []
    assert (near.tables, near.partitions) == before
    # The other link of the session is brought up to date, and the refused one can be listed and dropped.
    assert links.refresh(Kind.TABLE, GOOD).partitions_dropped == 3
    assert [row[1] for row in links.run("SHOW REMOTES")[0].rows] == ["default.good", "default.old"]
    links.run("DROP REMOTE TABLE old")
    assert set(near.tables) == {("default", "good")}


def test_altering_another_property_names_the_refused_one(links: Remotes, near: MemoryMetastore) -> None:
    properties = {**URIS, "javax.jdo.option.ConnectionPassword": "Planted"}
    near.tables["default", "old"].parameters |= {VIA: "thrift", PROPERTIES: json.dumps(properties)}
    with pytest.raises(ConfigurationError, match=r"table default\.old: .*ConnectionPassword") as caught:
        links.run("ALTER REMOTE TABLE old SET 'hive.metastore.uris' = 'thrift://127.0.0.1:2'")
    assert "DROP REMOTE TABLE default.old" in caught.value.remedy
    assert near.writes == []


def test_a_link_that_cannot_be_read(links: Remotes, near: MemoryMetastore) -> None:
    near.tables["default", "old"].parameters[PROPERTIES] = '{"Planted'
    for statement in ("REFRESH REMOTE TABLE old", "DESCRIBE old", "ALTER REMOTE TABLE old SET 'note' = 'x'"):
        with pytest.raises(RemoteError, match=r"link of table default\.old cannot be read") as caught:
            links.run(statement)
        assert "DROP REMOTE TABLE default.old" in caught.value.remedy
        assert "Planted" not in str(caught.value)
    assert near.writes == []
    good, old = links.run("SHOW REMOTES")[0].rows
    assert (good[1], good[4]) == ("default.good", f"event {links.link(Kind.TABLE, GOOD).event_id}")
    assert old[1] == "default.old"
    assert "cannot be read" in old[4]
    assert [link.local for link in links.links()] == [GOOD]
    links.run("DROP REMOTE TABLE old")
    assert set(near.tables) == {("default", "good")}


def test_a_damaged_link_of_a_remote_database_is_left_out(
    remotes: Remotes, near: MemoryMetastore, far: MemoryCatalog
) -> None:
    far.put_table(view("seen", "plain"))
    remotes.run(f"CREATE REMOTE DATABASE mirror CONNECTED TO {DATABASE} VIA 'far'")
    near.tables["mirror", "plain"].parameters[PROPERTIES] = "{"
    damaged = copy.deepcopy(near.tables["mirror", "plain"])
    for name in ("plain", "parted"):
        changed = tables("file:/far")[name][0]
        changed.parameters["note"] = "changed"
        far.put_table(changed)
    report = remotes.refresh(Kind.DATABASE, MIRROR, whole=True)
    assert (report.altered, report.partitions_dropped) == (["parted"], 3)
    # The view reads a link that nobody can vouch for any more.
    assert (report.dropped, sorted(report.skipped)) == (["seen"], ["plain", "seen"])
    assert "DROP REMOTE TABLE mirror.plain" in report.skipped["plain"]
    assert near.tables["mirror", "plain"] == damaged
    rows = remotes.run("DESCRIBE REMOTE DATABASE mirror")[0].rows
    assert ("plain", "", report.skipped["plain"]) in rows
    remotes.run("DROP REMOTE TABLE mirror.plain")
    assert remotes.refresh(Kind.DATABASE, MIRROR, whole=True).created == ["plain", "seen"]
    near.tables["mirror", "plain"].parameters[PROPERTIES] = "{"
    remotes.run("DROP REMOTE DATABASE mirror")
    assert not near.tables
    assert "mirror" not in near.databases


def test_a_damaged_link_is_kept_when_its_table_is_no_longer_linked(
    remotes: Remotes, near: MemoryMetastore, far: MemoryCatalog
) -> None:
    far.put_table(view("seen", "plain"))
    remotes.run(f"CREATE REMOTE DATABASE mirror CONNECTED TO {DATABASE} VIA 'far'")
    near.tables["mirror", "seen"].parameters[PROPERTIES] = "{"
    far.put_table(view("seen", "elsewhere"))
    report = remotes.refresh(Kind.DATABASE, MIRROR)
    assert (report.dropped, list(report.skipped)) == ([], ["seen"])
    assert ("mirror", "seen") in near.tables


@pytest.mark.parametrize("place", ["table", "partition"])
def test_locations_that_lead_out_of_their_directory(
    remotes: Remotes, near: MemoryMetastore, far: MemoryCatalog, place: str
) -> None:
    remotes.run(f"CREATE REMOTE TABLE old CONNECTED TO {DATABASE}.parted VIA 'far'")
    remotes.run(f"CREATE REMOTE DATABASE mirror CONNECTED TO {DATABASE} VIA 'far'")
    table, partitions = tables("file:/far")["parted"]
    storage: Any = table.sd if place == "table" else partitions[1].sd
    storage.location = "file:/far/parted/../secrets"
    far.put_table(table, partitions)
    plain = tables("file:/moved")["plain"][0]
    far.put_table(plain)
    parted = copy.deepcopy((near.tables["mirror", "parted"], near.partitions["mirror", "parted"]))
    near.calls.clear()
    with pytest.raises(RemoteUnsupportedError, match=r"default\.old is linked, .*secrets") as caught:
        remotes.refresh(Kind.TABLE, OLD)
    assert "Alter the location at the remote" in caught.value.remedy
    assert near.writes == []
    report = remotes.refresh(Kind.DATABASE, MIRROR)
    assert (report.altered, report.dropped, list(report.skipped)) == (["plain"], [], ["parted"])
    assert "Alter the location at the remote" in report.skipped["parted"]
    assert parted == (near.tables["mirror", "parted"], near.partitions["mirror", "parted"])


@pytest.mark.parametrize("altered", [False, True], ids=["refreshed", "altered"])
def test_changes_beside_a_refused_location_are_applied_once_it_is_altered(
    remotes: Remotes, near: MemoryMetastore, far: MemoryCatalog, altered: bool
) -> None:
    """The events of the other partitions do not come again when the location is altered."""
    remotes.run(f"CREATE REMOTE DATABASE mirror CONNECTED TO {DATABASE} VIA 'far'")
    before = remotes.link(Kind.DATABASE, MIRROR).event_id
    partitions = tables("file:/far")["parted"][1]
    for value, place in (("good", "file:/far/parted/good"), ("bad", "file:/far/parted/../bad")):
        made = copy.deepcopy(partitions[0])
        made.values, made.sd.location = [value], place
        partitions.append(made)
    far._partitions[DATABASE, "parted"] = {f"p={part.values[0]}": part for part in partitions}
    _event(far, "ADD_PARTITION", "good", "bad")
    if altered:
        remotes.run("ALTER REMOTE DATABASE mirror SET 'note' = 'x'")
        assert remotes.link(Kind.DATABASE, MIRROR).properties == {"note": "x"}
    else:
        report = remotes.refresh(Kind.DATABASE, MIRROR)
        assert (list(report.skipped), report.event_id) == (["parted"], before)
    assert probes.pending(remotes, Kind.DATABASE, MIRROR)
    partitions[-1].sd.location = "file:/far/parted/bad"
    _event(far, "ALTER_PARTITION", "bad")
    report = remotes.refresh(Kind.DATABASE, MIRROR)
    assert (report.partitions_added, report.skipped, report.event_id) == (2, {}, far.last_event_id())
    assert {"p=good", "p=bad"} <= near.partitions["mirror", "parted"].keys()
    assert not probes.pending(remotes, Kind.DATABASE, MIRROR)


def _event(far: MemoryCatalog, event_type: str, *values: str) -> None:
    parts: list[dict[str, str]] = [{"p": value} for value in values]
    message: Any = {"keyValues": parts[0]} if event_type == "ALTER_PARTITION" else {"partitions": parts}
    far._events.append(
        types.NotificationEvent(
            eventId=far.last_event_id() + 1,
            eventType=event_type,
            dbName=DATABASE,
            tableName="parted",
            message=json.dumps(message),
            messageFormat="json-0.2",
        )
    )


@pytest.mark.parametrize("event", ["9" * 30, "-" + "9" * 30])
def test_a_position_that_no_event_can_have(remotes: Remotes, near: MemoryMetastore, event: str) -> None:
    """No call to a metastore could carry it."""
    remotes.run(f"CREATE REMOTE TABLE old CONNECTED TO {DATABASE}.parted VIA 'far'")
    near.tables["default", "old"].parameters[EVENT] = event
    with pytest.raises(RemoteError, match=r"link of table default\.old cannot be read: .*8 bytes"):
        remotes.refresh(Kind.TABLE, OLD)
    remotes.run("DROP REMOTE TABLE old")


def view(name: str, reads: str) -> Any:
    table: Any = tables("file:/far")["plain"][0]
    table.tableName, table.tableType, table.sd.location = name, "VIRTUAL_VIEW", None
    table.viewExpandedText = table.viewOriginalText = f"SELECT `id` FROM `{DATABASE}`.`{reads}`"
    return table
