"""Links are kept in parameters, and links that lead back are refused."""

from __future__ import annotations

import pytest

from airflow_hive_federation.errors import CyclicRemoteError, RemoteError
from airflow_hive_federation.remotes.links import (
    NAME,
    PATH,
    PROPERTIES,
    Link,
    link_of,
    path_behind,
    refuse_cycle,
)
from airflow_hive_federation.remotes.statement import CreateRemote, Kind, Name, parse_script

LOCAL = Name(database="d", table="t")
LINK = Link(
    kind=Kind.TABLE,
    local=LOCAL,
    remote=Name(database="größe", table="rt"),
    via="x.y.SSHThriftHiveMetastoreClientFactory",
    properties={"hive.metastore.uris": "thrift://h:1", "it's": "a \\ 'quoted'\nvalue"},
    path=("one", "two"),
    event_id=7,
    definition="abc",
)


def test_what_is_kept_is_read_back() -> None:
    assert link_of(Kind.TABLE, LOCAL, LINK.parameters()) == LINK
    member = Link(kind=Kind.TABLE, local=LOCAL, remote=Name(database="r", table="t"), member=True)
    assert link_of(Kind.TABLE, LOCAL, member.parameters()) == member
    database = Link(kind=Kind.DATABASE, local=Name(database="d"), remote=Name(database="r"), event_id=-1)
    assert link_of(Kind.DATABASE, Name(database="d"), {"other": "x", **database.parameters()}) == Link(
        kind=Kind.DATABASE, local=Name(database="d"), remote=Name(database="r"), via="thrift", event_id=-1
    )
    assert link_of(Kind.TABLE, LOCAL, {"other": "x"}) is None
    assert link_of(Kind.TABLE, LOCAL, None) is None


def test_a_name_in_a_nested_namespace_is_read_back() -> None:
    table = Link(kind=Kind.TABLE, local=LOCAL, remote=Name(database="sales.eu", table="taxes"), via="iceberg")
    assert link_of(Kind.TABLE, LOCAL, table.parameters()) == table
    database = Link(
        kind=Kind.DATABASE, local=Name(database="d"), remote=Name(database="sales.eu"), via="iceberg"
    )
    assert link_of(Kind.DATABASE, Name(database="d"), database.parameters()) == database


def test_its_statement_makes_it_again() -> None:
    statement = parse_script(LINK.statement(LINK.properties))[0]
    assert isinstance(statement, CreateRemote)
    assert (statement.name, statement.connected_to) == (LINK.local, LINK.remote)
    assert (statement.via, statement.properties) == (LINK.via, LINK.properties)


@pytest.mark.parametrize(
    "damage",
    [
        {NAME: "nodot"},
        {NAME: "a..c"},
        {NAME: "a."},
        {NAME: ".c"},
        {NAME: ""},
        {PROPERTIES: "{"},
        {PROPERTIES: "[]"},
        {PROPERTIES: "null"},
        {PROPERTIES: '{"a": 1}'},
        {PROPERTIES: '{"a": {"b": "c"}}'},
        {PROPERTIES: '{"a": ' + "[" * 30_000},
        {PROPERTIES: '{"a": ' + '{"a": ' * 10_000},
        {PROPERTIES: '{"a": "' + "x" * 70_000 + '"}'},
        {"hive.federation.remote.event": "x"},
    ],
)
def test_damaged_links_are_errors(damage: dict[str, str]) -> None:
    with pytest.raises(RemoteError, match="cannot be read"):
        link_of(Kind.TABLE, LOCAL, {**LINK.parameters(), **damage})


def test_paths() -> None:
    assert path_behind("far", {}) == ("far",)
    assert path_behind("far", {PATH: "further,furthest"}) == ("far", "further", "furthest")
    assert path_behind(None, {PATH: "x"}) == ("x",)


@pytest.mark.parametrize(
    ("path", "here", "refused"),
    [
        (("far",), "here", False),
        (("far", "further"), "here", False),
        (("far", "here"), "here", True),
        (("far", "further", "here"), "here", True),
        (("here", "here"), "here", True),
        (("here", "far", "here"), "here", True),
        (("here", "far"), "here", False),  # another name of a link
        (("here",), "here", False),  # another name in the same metastore
        (("far", "here"), None, False),
    ],
)
def test_cycles(path: tuple[str, ...], here: str | None, refused: bool) -> None:
    if refused:
        with pytest.raises(CyclicRemoteError):
            refuse_cycle(LOCAL, LINK.remote, path, here)
    else:
        refuse_cycle(LOCAL, LINK.remote, path, here)


def test_a_table_does_not_stand_for_itself() -> None:
    with pytest.raises(CyclicRemoteError):
        refuse_cycle(LOCAL, LOCAL, ("here",), "here")
