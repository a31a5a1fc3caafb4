"""Answers calls for lists and table definitions with the merged answers of several metastores."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from airflow_hive_federation.gateway.federation.fan_out import Question, ask_all, require
from airflow_hive_federation.gateway.federation.listing import (
    Part,
    limit_of,
    merged,
    part_of_all,
    parts_of_database,
)
from airflow_hive_federation.gateway.federation.metastores import Metastores
from airflow_hive_federation.gateway.federation.owners import Link
from airflow_hive_federation.gateway.federation.renaming import (
    answer_of,
    arguments,
    call_of,
    check_request,
    fault_text,
    result,
    to_client,
)
from airflow_hive_federation.gateway.handler import Call, Status, refused
from airflow_hive_federation.gateway.messages import Emit, read_head
from airflow_hive_federation.gateway.names import identifier, references
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl import types


def of_all(metastores: Metastores, call: Call, emit: Emit) -> None:
    """Answer with one list of all metastores' elements.

    :raises GatewayError: a metastore's part is missing, and ``on_missing`` is ``fail``, or that metastore is
        the primary.
    :raises MalformedMessage: the call has no request, and its method needs one.
    """
    values = arguments(call.method, call.message)
    if call.method == "get_databases_req":
        check_request(values)
    parts: list[tuple[str, Part]] = []
    if not metastores.is_of_another_catalog(call):
        for owner in metastores.named_owners():
            if (part := part_of_all(call.method, values, metastores.owners, owner)) is not None:
                parts.append((owner, part))
    _merge(metastores, call, emit, values, parts)


def of_database(metastores: Metastores, call: Call, emit: Emit) -> None:
    """Answer with the tables of a database, and other metastores' single tables that have a name in it.

    :raises GatewayError: as :func:`of_all`.
    """
    resolved, links = metastores.resolve(call)
    owner = metastores.one_owner(call.method, resolved)
    if owner != metastores.primary or not resolved or metastores.is_of_another_catalog(call):
        metastores.send(call, owner, resolved, links, emit)
        return
    values = arguments(call.method, call.message)
    database, owners = resolved[0][0].database, metastores.owners
    parts = [
        (other, part)
        for other in metastores.named_owners()
        for part in parts_of_database(call.method, values, database, owners, other)
    ]
    _merge(metastores, call, emit, values, parts)


def tables(metastores: Metastores, call: Call, emit: Emit) -> None:
    """Answer with the definitions of tables, which their owners deliver.

    :raises GatewayError: a view cannot be rewritten with local names, or an owner answers with a fault.
    """
    resolved, links = metastores.resolve(call)
    if (listed := _with_listed_names(metastores, call, links)) is not call:
        call = listed
        resolved, links = metastores.resolve(call)
    groups: dict[tuple[str, str], list[Any]] = {}
    for entry in resolved:
        groups.setdefault((entry[1].owner, entry[1].database), []).append(entry)
    if len(groups) < 2:
        metastores.send(call, metastores.one_owner(call.method, resolved), resolved, links, emit)
        return
    values = arguments(call.method, call.message)
    definitions: list[Any] = []
    returned: Any = None
    for (owner, database), group in groups.items():
        message = _for_tables(call, values, database, [place.table for _, place in group])
        answer = metastores.members[owner].ask(replace(call, message=message))
        if owner != metastores.primary:
            answer = to_client(call.method, answer, metastores.naming(owner, group, links))
        if (returned := result(call.method, answer)) is None:
            raise refused(
                Status.FAILED, f"{call.method} at metastore {owner}: {fault_text(call.method, answer)}"
            )
        definitions += returned if isinstance(returned, list) else returned.tables
    success = definitions if isinstance(returned, list) else types.GetTablesResult(tables=definitions)
    emit(answer_of(call.method, read_head(call.message).sequence_id, success))


def _merge(
    metastores: Metastores, call: Call, emit: Emit, values: Any, parts: list[tuple[str, Part]]
) -> None:
    primary = metastores.members[metastores.primary]
    if not parts:
        primary.relay(call, emit)
        return
    # One metastore may get several questions, so each key has a number.
    numbered = {f"{owner} {number}": (owner, part) for number, (owner, part) in enumerate(parts)}
    questions = {
        metastores.primary: (primary, Question(call.method, values.set_fields())),
        **{key: (metastores.members[owner], part.question) for key, (owner, part) in numbered.items()},
    }
    answers, reasons = ask_all(call, questions, metastores.part_timeout_s)
    reasons = {numbered[key][0] if key in numbered else key: reason for key, reason in reasons.items()}
    require(call, reasons, primary=metastores.primary, partial=metastores.partial, missing=metastores.missing)
    others = [
        element
        for key, (_, part) in numbered.items()
        if key in answers
        for element in part.elements(answers[key])
    ]
    success, limit = answers[metastores.primary], limit_of(call.method, values)
    answer = merged(call.method, metastores.owners, success, others, limit)
    emit(answer_of(call.method, read_head(call.message).sequence_id, answer))


def _with_listed_names(metastores: Metastores, call: Call, links: tuple[Link, ...]) -> Call:
    """Return a call for a pattern's tables as a call for their names, if other metastores may have some.

    :raises GatewayError: the tables cannot be listed.
    """
    request = getattr(arguments(call.method, call.message), "req", None)
    if request is None or request.tablesPattern is None or metastores.is_of_another_catalog(call):
        return call
    database, owners = call.named[0].database, metastores.owners
    has_others = metastores.follows_links or any(name[0] == database for name in owners.single_tables())
    if not has_others or owners.place(database, None, links).owner != metastores.primary:
        return call
    place = f"@{request.catName}#{database}" if request.catName else database
    question = Question("get_tables", {"db_name": place, "pattern": request.tablesPattern}).call(call)
    parts: list[bytes] = []
    of_database(metastores, _with_names_of(question, call), parts.append)
    answer = b"".join(parts)
    if (names := result(question.method, answer)) is None:
        raise refused(Status.FAILED, f"{call.method}: {fault_text(question.method, answer)}")
    wanted = None if request.tblNames is None else {identifier(name) for name in request.tblNames}
    named = copy.copy(request)
    named.tablesPattern = None
    named.tblNames = [
        name
        for name in names
        if (wanted is None or identifier(name) in wanted)
        and (call.permits is None or call.permits(database, identifier(name)))
    ]
    message = call_of(
        call.method, read_head(call.message).sequence_id, message_types(call.method)[0](req=named)
    )
    return _with_names_of(replace(call, message=message), call)


def _with_names_of(changed: Call, call: Call) -> Call:
    """Return a call with the names in its own message, for the caller of another one."""
    body = read_head(changed.message).body
    named = tuple(references(changed.message, body, message_types(changed.method)[0]))
    return replace(changed, named=named, permits=call.permits, facts=call.facts)


def _for_tables(call: Call, values: Any, database: str, names: list[str | None]) -> bytes:
    changed = copy.copy(values)
    if call.method == "get_table_objects_by_name":
        changed.dbname, changed.tbl_names = database, names
    else:
        changed.req = copy.copy(values.req)
        changed.req.dbName, changed.req.tblNames = database, names
    return call_of(call.method, read_head(call.message).sequence_id, changed)
