"""Locks, write ids and the history that readers keep: asked of the metastore that owns the tables."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.gateway.dispatch import Call
from airflow_hive_federation.gateway.federation.owners import LocalName, Place
from airflow_hive_federation.gateway.federation.renaming import (
    answer_of,
    arguments,
    call_of,
    fault_text,
    result,
)
from airflow_hive_federation.gateway.federation.transactions import NOTHING, another_owner, locked, writes
from airflow_hive_federation.gateway.handler import Status, refused
from airflow_hive_federation.gateway.messages import Emit, read_head
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl import types

if TYPE_CHECKING:
    from airflow_hive_federation.gateway.federation.target import Federation


def lock(federation: Federation, call: Call, emit: Emit) -> None:
    """Ask the owner of the tables, or of the transaction, for a lock.

    :raises GatewayError: the lock would be of several metastores.
    """
    request = arguments(call.method, call.message).rqst
    request.component = list(request.component or [])
    places = _places(federation, call, [(one.dbname, one.tablename) for one in request.component])
    owner, components = locked(request, places, federation.transactions_of)
    if owner != federation.primary and writes(request):
        federation.check_writable(call.method, owner)
    asked = copy.copy(request)
    asked.component = [_renamed(component, place) for component, place in components] or [_nothing()]
    member = federation.members[owner]
    if owner == federation.primary and asked.component == request.component:
        answer = member.ask(call)
    else:
        answer = member.ask(_with(call, rqst=asked))
    emit(_marked(federation, call, owner, answer))


def by_lock_id(federation: Federation, call: Call, emit: Emit) -> None:
    """Ask the metastore that gave a lock about it.

    :raises GatewayError: none of the gateway's metastores gave it.
    """
    values = arguments(call.method, call.message)
    (request,) = values.set_fields().values()
    owner, lock_id = federation.lock_ids.read(request.lockid or 0)
    if owner == federation.transactions_of:
        federation.members[owner].relay(call, emit)
        return
    request.lockid = lock_id
    message = call_of(call.method, read_head(call.message).sequence_id, values)
    answer = federation.members[owner].ask(replace(call, message=message))
    emit(_marked(federation, call, owner, answer) if call.method == "check_lock" else answer)


def write_ids(federation: Federation, call: Call, emit: Emit) -> None:
    """Ask each owner for the valid write ids of its tables.

    :raises GatewayError: they are asked as of a list of transactions that is of another metastore, or the
        part of one metastore is missing.
    """
    request = arguments(call.method, call.message).rqst
    names = [_split(one) for one in request.fullTableNames or []]
    places = _places(federation, call, names)
    owners = list(dict.fromkeys(place.owner for place in places)) or [federation.transactions_of]
    if request.validTxnList:
        foreign = [
            (name, place)
            for name, place in zip(names, places, strict=True)
            if place.owner != federation.transactions_of
        ]
        if foreign:
            raise another_owner(call.method, federation.transactions_of, foreign)
    if request.writeId and len(owners) > 1:
        raise refused(
            Status.FAILED,
            f"{call.method}: write id {request.writeId} is of one metastore, and the tables are of "
            f"{', '.join(owners)}.",
            remedy="Ask for the tables of each metastore.",
        )
    if owners == [federation.primary]:
        federation.members[federation.primary].relay(call, emit)
        return
    found: dict[Place, Any] = {}
    for owner in owners:
        asked = copy.copy(request)
        asked.fullTableNames = [f"{one.database}.{one.table}" for one in places if one.owner == owner]
        answer = federation.members[owner].ask(_with(call, rqst=asked))
        if (success := result(call.method, answer)) is None:
            if len(owners) == 1:
                emit(answer)
                return
            raise refused(
                Status.FAILED, f"{call.method} at metastore {owner}: {fault_text(call.method, answer)}"
            )
        for one in success.tblValidWriteIds:
            found[Place(owner, *_split(one.fullTableName))] = one
    made = [
        _with_name(found[place], name) for name, place in zip(names, places, strict=True) if place in found
    ]
    response = types.GetValidWriteIdsResponse(tblValidWriteIds=made)
    emit(answer_of(call.method, read_head(call.message).sequence_id, response))


def min_history(federation: Federation, call: Call, emit: Emit) -> None:
    """Have the cleaner of the transaction's metastore keep what a reader registers.

    :raises GatewayError: a table is of another metastore.
    """
    values = arguments(call.method, call.message)
    names = [_split(one) for one in values.writeIds or {}]
    places = _places(federation, call, names)
    owner = federation.transactions_of
    foreign = [(name, place) for name, place in zip(names, places, strict=True) if place.owner != owner]
    if foreign:
        raise another_owner(call.method, owner, foreign)
    if owner == federation.primary:
        federation.members[owner].relay(call, emit)
        return
    kept = dict(
        zip((f"{one.database}.{one.table}" for one in places), (values.writeIds or {}).values(), strict=True)
    )
    emit(federation.members[owner].ask(_with(call, txnId=values.txnId, writeIds=kept)))


def _places(federation: Federation, call: Call, names: list[LocalName]) -> list[Place]:
    lower = [(database.lower(), table.lower() if table else None) for database, table in names]
    links = federation.links(call, lower)
    return [federation.owners.place(database, table, links) for database, table in lower]


def _with(call: Call, **values: Any) -> Call:
    message = call_of(
        call.method, read_head(call.message).sequence_id, message_types(call.method)[0](**values)
    )
    return replace(call, message=message)


def _renamed(component: Any, place: Place) -> Any:
    made = copy.copy(component)
    if (component.dbname.lower(), (component.tablename or "").lower()) != (place.database, place.table or ""):
        made.dbname, made.tablename = place.database, place.table
    return made


def _nothing() -> Any:
    return types.LockComponent(
        type=types.LockType.SHARED_READ,
        level=types.LockLevel.DB,
        dbname=NOTHING,
        operationType=types.DataOperationType.SELECT,
        isTransactional=False,
    )


def _marked(federation: Federation, call: Call, owner: str, answer: bytes) -> bytes:
    """The answer with a lock's id for clients."""
    if owner == federation.transactions_of or (success := result(call.method, answer)) is None:
        return answer
    success.lockid = federation.lock_ids.mark(owner, success.lockid)
    return answer_of(call.method, read_head(call.message).sequence_id, success)


def _split(name: str) -> tuple[str, str | None]:
    database, _, table = name.lower().rpartition(".")
    return database.rpartition(".")[2], table


def _with_name(one: Any, name: LocalName) -> Any:
    made = copy.copy(one)
    made.fullTableName = f"{name[0]}.{name[1]}"
    return made
