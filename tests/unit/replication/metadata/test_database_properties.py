from __future__ import annotations

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.metadata.database_properties import (
    OWNER_FIELDS,
    database_claims,
    take_properties,
)


def source() -> types.Database:
    parameters = {"team": "one", "repl.source.for": "p"}
    return types.Database(name="shop", description="a shop", ownerName="ann", parameters=parameters)


def test_what_belongs_to_no_side_is_the_same_on_both() -> None:
    target = types.Database(
        name="copy", description="", ownerName="bob", parameters={"old": "1", "repl.last.id": "7"}
    )
    take_properties(target, source(), adopted=False)
    assert target.parameters == {"team": "one", "repl.last.id": "7"}
    assert (target.description, target.ownerName) == ("a shop", "ann")
    assert database_claims(target) == database_claims(source())


def test_an_adopted_database_keeps_what_is_its_own() -> None:
    target = types.Database(
        name="copy", description="mine", ownerName="bob", parameters={"mine": "1", "team": "two"}
    )
    take_properties(target, source(), adopted=True)
    assert target.parameters == {"mine": "1", "team": "one"}
    assert (target.description, target.ownerName) == ("mine", "bob")


def test_an_empty_comment_is_none() -> None:
    assert database_claims(types.Database(description="")) == database_claims(types.Database())


def test_a_database_without_an_owner_leaves_the_target_its_own() -> None:
    without = types.Database(name="shop", description="a shop", ownerType=types.PrincipalType.USER)
    target = types.Database(name="copy", ownerName="bob", ownerType=types.PrincipalType.ROLE)
    take_properties(target, without, adopted=False)
    assert (target.description, target.ownerName) == ("a shop", "bob")
    assert target.ownerType == types.PrincipalType.ROLE
    assert not OWNER_FIELDS & database_claims(without).keys()
