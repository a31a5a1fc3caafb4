"""Rules of the gateway, pure: who may call what about which databases, and what there is to see at all."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache

from airflow_hive_federation.gateway.answers import LISTINGS
from airflow_hive_federation.gateway.handler import Caller, Status, refused
from airflow_hive_federation.gateway.methods import ACCESS, INDEXES, NEVER, OF_NO_DATABASE, Access
from airflow_hive_federation.gateway.names import Reference


class Patterns:
    """Names as patterns: ``*`` and ``?`` as in a shell; ``!`` before one takes away what it matches.

    The last pattern that matches decides. Names of Hive are not case-sensitive.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self.patterns = tuple(patterns)
        self._compiled = [
            (not one.startswith("!"), re.compile(translate(one.removeprefix("!").lower())))
            for one in patterns
        ]
        #: Whether every name matches.
        self.all = self.patterns == ("*",)

    def match(self, name: str) -> bool:
        """Whether a name is meant."""
        if self.all:
            return True
        lower = name.lower()
        for wanted, pattern in reversed(self._compiled):
            if pattern.match(lower):
                return wanted
        return False


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One permission; what no rule permits is refused.

    :param users: patterns of names of users.
    :param groups: patterns, one of which one of the caller's groups matches; empty asks for no group.
    :param authentication: ways in which the caller may be known (see :class:`Caller`); empty is any.
    :param access: classes of methods that it permits.
    :param databases: patterns of databases, under the names that clients use.
    """

    users: tuple[str, ...] = ("*",)
    groups: tuple[str, ...] = ()
    authentication: tuple[str, ...] = ()
    access: tuple[Access, ...] = (Access.READ,)
    databases: tuple[str, ...] = ("*",)

    def concerns(self, caller: Caller) -> bool:
        """Whether the rule is about a caller."""
        return (
            Patterns(self.users).match(caller.user)
            and (not self.groups or any(map(Patterns(self.groups).match, caller.groups)))
            and (not self.authentication or caller.authentication in self.authentication)
        )


#: A gateway without rules lets everybody call everything, as a metastore does.
EVERYTHING = Rule(access=tuple(Access))


class Exposure:
    """What clients can see at all: databases, and tables as ``database.table``.

    :param databases: patterns of databases.
    :param tables: patterns of ``database.table``.
    """

    def __init__(self, databases: Sequence[str] = ("*",), tables: Sequence[str] = ("*",)) -> None:
        self._databases = Patterns(databases)
        self._tables = Patterns(tables)
        #: Whether nothing is hidden.
        self.all = self._databases.all and self._tables.all

    def shows(self, database: str, table: str | None = None) -> bool:
        """Whether a database, or a table of it, is to be seen."""
        if not self._databases.match(database):
            return False
        return table is None or self._tables.all or self._tables.match(f"{database}.{table}")


class Rules:
    """Decides on calls.

    :param rules: permissions; one that permits suffices.
    :param exposure: what is to be seen, for everybody.
    """

    def __init__(self, rules: Sequence[Rule] = (EVERYTHING,), exposure: Exposure | None = None) -> None:
        self._rules = tuple(rules)
        self.exposure = exposure or Exposure()
        self._databases_of = lru_cache(maxsize=4096)(self._find_databases)

    def unlimited(self, method: str, caller: Caller) -> bool:
        """Whether a call may be made whatever it names, so that nobody need look.

        :raises GatewayError: the method exists for nobody, or the caller may not call it at all.
        """
        databases = self._permitted(method, caller)
        return self.exposure.all and any(one.all for one in databases)

    def check(self, method: str, caller: Caller, named: Iterable[Reference]) -> None:
        """Refuse a call that a rule does not permit, or that names what is hidden.

        :param named: what it names, under the names that clients use.
        :raises GatewayError: it is refused.
        """
        databases = self._permitted(method, caller)
        count = 0
        for one in named:
            count += bool(one.database)
            if one.database and not self.sees(databases, one.database, one.table):
                what = one.database if one.table is None else f"{one.database}.{one.table}"
                raise refused(
                    Status.DENIED,
                    f"{method}: user {caller.user!r} may not {ACCESS[method]} {what} through this gateway.",
                    remedy="Ask whoever runs the gateway for a rule, or for an entry in its allow-list.",
                )
        if not count and method not in OF_NO_DATABASE and method not in LISTINGS:
            everything = self.exposure.all and any(one.all for one in databases)
            if not everything:
                raise refused(
                    Status.DENIED,
                    f"{method}: user {caller.user!r} may see some databases only, and the call names none.",
                    remedy="Name a database, or ask whoever runs the gateway for a rule about all of them.",
                )

    def shown(self, method: str, caller: Caller, database: str, table: str | None = None) -> bool:
        """Whether an answer may name a database, or a table, to a caller."""
        return self.sees(self._permitted(method, caller), database, table)

    def sees(self, databases: Iterable[Patterns], database: str, table: str | None) -> bool:
        """Whether permitted patterns and the allow-list let a name through."""
        return self.exposure.shows(database, table) and any(one.match(database) for one in databases)

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
                remedy="Ask whoever runs the gateway for a rule.",
            )
        return databases

    def _find_databases(self, caller: Caller, access: Access) -> tuple[Patterns, ...]:
        return tuple(
            Patterns(rule.databases)
            for rule in self._rules
            if access in rule.access and rule.concerns(caller)
        )
