"""Sends calls about locks, write ids and readers' snapshots to the metastore that owns the tables."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from airflow_hive_federation.gateway.federation.metastores import Metastores
from airflow_hive_federation.gateway.federation.owners import LocalName, OwnedName
from airflow_hive_federation.gateway.federation.renaming import (
    answer_of,
    arguments,
    call_of,
    check_request,
    fault_text,
    result,
)
from airflow_hive_federation.gateway.federation.transactions import NOTHING, another_owner, locked, writes
from airflow_hive_federation.gateway.handler import Call, Status, refused
from airflow_hive_federation.gateway.messages import Emit, read_head
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.message_bounds import MalformedMessage


def lock(metastores: Metastores, call: Call, emit: Emit) -> None:
    """Request a lock from the owner of the transaction, or of the tables outside of transactions.

    :raises GatewayError: the lock would span several metastores.
    :raises MalformedMessage: the call has no request, or a component has no database.
    """
    values = arguments(call.method, call.message)
    check_request(values)
    request = values.rqst
    request.component = list(request.component or [])
    if any(component.dbname is None for component in request.component):
        raise MalformedMessage("a component of the lock has no database")
    places = _places(metastores, call, [(part.dbname, part.tablename) for part in request.component])
    owner, components = locked(request, places, metastores.transactions_of)
    if owner != metastores.primary and writes(request):
        metastores.check_writable(call, owner)
    forwarded = copy.copy(request)
    forwarded.component = [_renamed(component, place) for component, place in components] or [_nothing()]
    member = metastores.members[owner]
    if owner == metastores.primary and forwarded.component == request.component:
        answer = member.ask(call)
    else:
        answer = member.ask(_with(call, rqst=forwarded))
    emit(_marked(metastores, call, owner, answer))


def show_locks(metastores: Metastores, call: Call, emit: Emit) -> None:
    """List the locks of a metastore, with the lock ids that clients get.

    Clients abort the transactions that they find in such lists. So ids of transactions are left out, unless
    they belong to the metastore of the clients' transactions.

    :raises GatewayError: the call names a transaction, and an object of another metastore.
    :raises MalformedMessage: the call has no request.
    """
    values = arguments(call.method, call.message)
    check_request(values)
    resolved, links = metastores.resolve(call)
    owner = metastores.one_owner(call.method, resolved)
    if values.rqst.txnid and owner != metastores.transactions_of:
        if resolved:
            named = [((reference.database, reference.table), place) for reference, place in resolved]
            raise another_owner(call.method, metastores.transactions_of, named)
        owner = metastores.transactions_of
    if owner == metastores.transactions_of:
        metastores.send(call, owner, resolved, links, emit)
        return
    parts: list[bytes] = []
    metastores.send(call, owner, resolved, links, parts.append)
    answer = b"".join(parts)
    if (success := result(call.method, answer)) is not None:
        for shown in success.locks or []:
            shown.lockid = metastores.lock_ids.mark(owner, shown.lockid)
            if shown.blockedByExtId:
                shown.blockedByExtId = metastores.lock_ids.mark(owner, shown.blockedByExtId)
            shown.txnid = None
        answer = answer_of(call.method, read_head(call.message).sequence_id, success)
    emit(answer)


def by_lock_id(metastores: Metastores, call: Call, emit: Emit) -> None:
    """Send a call about a lock to the metastore that gave the lock.

    :raises GatewayError: none of the gateway's metastores gave the lock.
    :raises MalformedMessage: the call has no request.
    """
    values = arguments(call.method, call.message)
    check_request(values)
    (request,) = values.set_fields().values()
    owner, lock_id = metastores.lock_ids.read(request.lockid or 0)
    if owner == metastores.transactions_of:
        metastores.members[owner].relay(call, emit)
        return
    request.lockid = lock_id
    message = call_of(call.method, read_head(call.message).sequence_id, values)
    answer = metastores.members[owner].ask(replace(call, message=message))
    emit(_marked(metastores, call, owner, answer) if call.method == "check_lock" else answer)


def write_ids(metastores: Metastores, call: Call, emit: Emit) -> None:
    """Request the valid write ids of tables from the tables' owners.

    :raises GatewayError: the call carries a list of transactions of another metastore than a table's owner,
        or the part of one metastore is missing.
    :raises MalformedMessage: the call has no request.
    """
    values = arguments(call.method, call.message)
    check_request(values)
    request = values.rqst
    names = [_split(full_name) for full_name in request.fullTableNames or []]
    places = _places(metastores, call, names)
    owners = list(dict.fromkeys(place.owner for place in places)) or [metastores.transactions_of]
    if request.validTxnList:
        foreign = [
            (name, place)
            for name, place in zip(names, places, strict=True)
            if place.owner != metastores.transactions_of
        ]
        if foreign:
            raise another_owner(call.method, metastores.transactions_of, foreign)
    if request.writeId and len(owners) > 1:
        raise refused(
            Status.FAILED,
            f"{call.method}: write id {request.writeId} is of one metastore, and the tables are of "
            f"{', '.join(owners)}.",
            remedy="Ask for the tables of each metastore.",
        )
    if owners == [metastores.primary]:
        metastores.members[metastores.primary].relay(call, emit)
        return
    by_place: dict[OwnedName, object] = {}
    for owner in owners:
        forwarded = copy.copy(request)
        forwarded.fullTableNames = [
            f"{owned.database}.{owned.table}" for owned in places if owned.owner == owner
        ]
        answer = metastores.members[owner].ask(_with(call, rqst=forwarded))
        if (success := result(call.method, answer)) is None:
            if len(owners) == 1:
                emit(answer)
                return
            raise refused(
                Status.FAILED, f"{call.method} at metastore {owner}: {fault_text(call.method, answer)}"
            )
        for table_ids in success.tblValidWriteIds:
            by_place[OwnedName(owner, *_split(table_ids.fullTableName))] = table_ids
    answered = [
        _with_name(by_place[place], name)
        for name, place in zip(names, places, strict=True)
        if place in by_place
    ]
    response = types.GetValidWriteIdsResponse(tblValidWriteIds=answered)
    emit(answer_of(call.method, read_head(call.message).sequence_id, response))


def min_history(metastores: Metastores, call: Call, emit: Emit) -> None:
    """Register a reader's write ids at the transaction's metastore, whose cleaner then keeps their files.

    :raises GatewayError: a table belongs to another metastore.
    """
    values = arguments(call.method, call.message)
    names = [_split(full_name) for full_name in values.writeIds or {}]
    places = _places(metastores, call, names)
    owner = metastores.transactions_of
    foreign = [(name, place) for name, place in zip(names, places, strict=True) if place.owner != owner]
    if foreign:
        raise another_owner(call.method, owner, foreign)
    if owner == metastores.primary:
        metastores.members[owner].relay(call, emit)
        return
    write_ids_there = dict(
        zip(
            (f"{owned.database}.{owned.table}" for owned in places),
            (values.writeIds or {}).values(),
            strict=True,
        )
    )
    emit(metastores.members[owner].ask(_with(call, txnId=values.txnId, writeIds=write_ids_there)))


def _places(metastores: Metastores, call: Call, names: list[LocalName]) -> list[OwnedName]:
    lower = [(database.lower(), table.lower() if table else None) for database, table in names]
    links = metastores.links(call, lower)
    return [metastores.owners.place(database, table, links) for database, table in lower]


def _with(call: Call, **values: object) -> Call:
    message = call_of(
        call.method, read_head(call.message).sequence_id, message_types(call.method)[0](**values)
    )
    return replace(call, message=message)


def _renamed(component: types.LockComponent, place: OwnedName) -> Any:
    renamed = copy.copy(component)
    if (component.dbname.lower(), (component.tablename or "").lower()) != (place.database, place.table or ""):
        renamed.dbname, renamed.tablename = place.database, place.table
    return renamed


def _nothing() -> Any:
    return types.LockComponent(
        type=types.LockType.SHARED_READ,
        level=types.LockLevel.DB,
        dbname=NOTHING,
        operationType=types.DataOperationType.SELECT,
        isTransactional=False,
    )


def _marked(metastores: Metastores, call: Call, owner: str, answer: bytes) -> bytes:
    """Return the answer with the lock id that clients get."""
    if owner == metastores.transactions_of or (success := result(call.method, answer)) is None:
        return answer
    success.lockid = metastores.lock_ids.mark(owner, success.lockid)
    return answer_of(call.method, read_head(call.message).sequence_id, success)


def _split(name: str) -> tuple[str, str | None]:
    database, _, table = name.lower().rpartition(".")
    return database.rpartition(".")[2], table


def _with_name(request: Any, name: LocalName) -> Any:
    renamed = copy.copy(request)
    renamed.fullTableName = f"{name[0]}.{name[1]}"
    return renamed
