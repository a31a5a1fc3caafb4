"""Matches the patterns of databases in calls to the names that clients use; does no I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping

from airflow_hive_federation.gateway.answers import filtered, only_field
from airflow_hive_federation.gateway.messages import STRING, STRUCT, Field, read_head, text_bytes
from airflow_hive_federation.gateway.names import bare_database
from airflow_hive_federation.metastore.message_bounds import MalformedMessage

#: By method, the ids of the fields that lead to the pattern of databases in its arguments.
PATTERNS = {"get_databases": (1,), "get_databases_req": (1, 2), "get_table_meta": (1,)}


def matches(pattern: str | None, name: str) -> bool:
    """Return whether a name matches a pattern of Hive.

    The rules are those of Hive's ``ObjectStore``: ``*`` is any text, ``.`` is any character, and ``|`` is or.
    A catalog may precede the pattern (``@hive#far*``). ``None`` or an empty pattern matches every name.
    """
    pattern = bare_database(pattern or "")
    if not pattern:
        return True
    parts = [
        "".join({"*": ".*", ".": "."}.get(character, re.escape(character)) for character in part)
        for part in pattern.split("|")
    ]
    return any(re.fullmatch(part, name, re.IGNORECASE | re.DOTALL) for part in parts)


def widened(method: str, message: bytes, aliases: Mapping[str, str]) -> bytes:
    """Return a call whose pattern also matches the databases whose aliases it matches.

    :param aliases: clients' names of databases → the metastore's names.
    :raises MalformedMessage: the call has several patterns, or one that is no UTF-8.
    """
    field, pattern = _pattern(method, message) if aliases else (None, "")
    if field is None or not bare_database(pattern):
        return message
    names = [
        name for alias, name in aliases.items() if matches(pattern, alias) and not matches(pattern, name)
    ]
    if not names:
        return message
    # In place of a character that may mean something in a pattern, any character matches.
    text = "|".join([pattern, *(re.sub(r"[^\w-]", ".", name) for name in names)])
    return b"".join([message[: field.start], text_bytes(text), message[field.end :]])


def narrowed(method: str, message: bytes, answer: bytes) -> bytes:
    """Return an answer with clients' names, without the databases that do not match the pattern.

    :param message: the call as the client made it.
    :raises MalformedMessage: the answer is malformed.
    """
    field, pattern = _pattern(method, message)
    if field is None or not bare_database(pattern):
        return answer
    return filtered(method, answer, (), lambda database, _table: matches(pattern, database))


def _pattern(method: str, message: bytes) -> tuple[Field | None, str]:
    """Return the pattern among the arguments of a call, and its field; no field if there is none."""
    if method not in PATTERNS:
        return None, ""
    *path, last = PATTERNS[method]
    position = read_head(message).body
    for number in path:
        request = only_field(message, position, number)
        if request is None or request.ttype != STRUCT:
            return None, ""
        position = request.start
    field = only_field(message, position, last)
    if field is None or field.ttype != STRING:
        return None, ""
    try:
        return field, message[field.start + 4 : field.end].decode()
    except UnicodeDecodeError as error:
        raise MalformedMessage("a pattern that is no UTF-8") from error
