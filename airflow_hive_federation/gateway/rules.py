"""Decides which users may call which methods about which databases, and which tables clients see at all."""

from __future__ import annotations

import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import translate

from airflow_hive_federation.gateway.answers import LISTINGS
from airflow_hive_federation.gateway.handler import Caller, Status, refused
from airflow_hive_federation.gateway.methods import ACCESS, INDEXES, NEVER, OF_NO_DATABASE, Access
from airflow_hive_federation.gateway.names import Reference

#: Greatest number of callers, with an access class each, whose rules are remembered.
_MOST_CALLERS = 4096


class Patterns:
    """Patterns of names: ``*`` and ``?`` as in a shell; ``!`` before a pattern excludes the names it matches.

    The last pattern that matches decides. Hive's names are not case-sensitive.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self.patterns = tuple(patterns)
        self._compiled = [
            (not pattern.startswith("!"), re.compile(translate(pattern.removeprefix("!").lower())))
            for pattern in patterns
        ]
        #: True if every name matches.
        self.all = self.patterns == ("*",)

    def match(self, name: str) -> bool:
        """Return whether the patterns include a name."""
        if self.all:
            return True
        lower = name.lower()
        for included, pattern in reversed(self._compiled):
            if pattern.match(lower):
                return included
        return False


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One permission; the gateway refuses calls that no rule permits.

    :param users: patterns of user names.
    :param groups: patterns of groups, at least one of which the caller must belong to; empty requires no
        group.
    :param authentication: accepted ways of authentication (see :class:`Caller`); empty accepts any.
    :param access: classes of methods that the rule permits.
    :param databases: patterns of databases, under the names that clients use.
    """

    users: tuple[str, ...] = ("*",)
    groups: tuple[str, ...] = ()
    authentication: tuple[str, ...] = ()
    access: tuple[Access, ...] = (Access.READ,)
    databases: tuple[str, ...] = ("*",)

    def concerns(self, caller: Caller) -> bool:
        """Return whether the rule applies to a caller."""
        return (
            Patterns(self.users).match(caller.user)
            and (not self.groups or any(map(Patterns(self.groups).match, caller.groups)))
            and (not self.authentication or caller.authentication in self.authentication)
        )


#: The rule of a gateway without rules: everybody may call every method, as at a metastore.
EVERYTHING = Rule(access=tuple(Access))


class Exposure:
    """The allow-list of databases, and of tables as ``database.table``, that clients can see at all.

    :param databases: patterns of databases.
    :param tables: patterns of ``database.table``.
    """

    def __init__(self, databases: Sequence[str] = ("*",), tables: Sequence[str] = ("*",)) -> None:
        self._databases = Patterns(databases)
        self._tables = Patterns(tables)
        #: True if nothing is hidden.
        self.all = self._databases.all and self._tables.all

    def shows(self, database: str, table: str | None = None) -> bool:
        """Return whether clients can see a database, or a table of it."""
        if not self._databases.match(database):
            return False
        return table is None or self._tables.all or self._tables.match(f"{database}.{table}")


class Rules:
    """Decides whether a caller may make a call.

    :param rules: permissions; one rule that permits a call suffices.
    :param exposure: the allow-list, which holds for everybody.
    """

    def __init__(self, rules: Sequence[Rule] = (EVERYTHING,), exposure: Exposure | None = None) -> None:
        self._rules = tuple(rules)
        self.exposure = exposure or Exposure()
        self._lock = threading.Lock()
        #: Databases by digests of callers and access classes, the last used at the end.
        self._found: OrderedDict[bytes, tuple[Patterns, ...]] = OrderedDict()

    def unlimited(self, method: str, caller: Caller) -> bool:
        """Return whether the caller may call the method about any database, so that names need no check.

        :raises GatewayError: the gateway serves the method to nobody, or the caller may not call it at all.
        """
        databases = self._permitted(method, caller)
        return self.exposure.all and any(patterns.all for patterns in databases)

    def check(self, method: str, caller: Caller, named: Iterable[Reference]) -> None:
        """Refuse a call that no rule permits, or that names a hidden database or table.

        :param named: databases and tables that the call names, under the names that clients use.
        :raises GatewayError: the call is refused.
        """
        databases = self._permitted(method, caller)
        count = 0
        for reference in named:
            count += bool(reference.database)
            if reference.database and not self.sees(databases, reference.database, reference.table):
                name = (
                    reference.database
                    if reference.table is None
                    else f"{reference.database}.{reference.table}"
                )
                raise refused(
                    Status.DENIED,
                    f"{method}: user {caller.user!r} may not {ACCESS[method]} {name} through this gateway.",
                    remedy="Ask the operator of the gateway for a rule, or for an entry in its allow-list.",
                )
        if not count and method not in OF_NO_DATABASE and method not in LISTINGS:
            everything = self.exposure.all and any(reference.all for reference in databases)
            if not everything:
                raise refused(
                    Status.DENIED,
                    f"{method}: user {caller.user!r} may see some databases only, and the call names none.",
                    remedy="Name a database, or ask the operator of the gateway for a rule about "
                    "all databases.",
                )

    def shown(self, method: str, caller: Caller, database: str, table: str | None = None) -> bool:
        """Return whether an answer may name a database, or a table of it, to a caller."""
        return self.sees(self._permitted(method, caller), database, table)

    def sees(self, databases: Iterable[Patterns], database: str, table: str | None) -> bool:
        """Return whether the permitted patterns and the allow-list include a database, or a table of it."""
        return self.exposure.shows(database, table) and any(
            patterns.match(database) for patterns in databases
        )

    def _permitted(self, method: str, caller: Caller) -> tuple[Patterns, ...]:
        if method in INDEXES:
            raise refused(
                Status.UNKNOWN_METHOD,
                f"{method}: Hive has had no indexes since version 3.0, and neither has this metastore.",
                remedy="Use materialized views, or columnar files.",
            )
        if method not in ACCESS:
            raise refused(
                Status.UNKNOWN_METHOD,
                f"{method!r} is no method of Hive's metastore that this gateway knows.",
                remedy="Use a newer version of the gateway, or another call.",
            )
        if method in NEVER:
            raise refused(Status.DENIED, f"{method} is never passed on.", remedy="Call it at the metastore.")
        databases = self._databases_of(caller, ACCESS[method])
        if not databases:
            raise refused(
                Status.DENIED,
                f"{method}: user {caller.user!r} may not make calls of the class {ACCESS[method]}.",
                remedy="Ask the operator of the gateway for a rule.",
            )
        return databases

    def _databases_of(self, caller: Caller, access: Access) -> tuple[Patterns, ...]:
        key = _digest(caller, access)
        with self._lock:
            if (known := self._found.get(key)) is not None:
                self._found.move_to_end(key)
                return known
        found = self._find_databases(caller, access)
        with self._lock:
            self._found[key] = found
            if len(self._found) > _MOST_CALLERS:
                self._found.popitem(last=False)
        return found

    def _find_databases(self, caller: Caller, access: Access) -> tuple[Patterns, ...]:
        return tuple(
            Patterns(rule.databases)
            for rule in self._rules
            if access in rule.access and rule.concerns(caller)
        )


def _digest(caller: Caller, access: Access) -> bytes:
    """Return a key of few bytes, however many groups the caller has."""
    names = repr((access.value, caller.user, caller.authentication, caller.groups))
    return hashlib.sha256(names.encode(errors="backslashreplace")).digest()
