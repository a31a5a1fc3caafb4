"""Rules that keep copies current: ``last 30 days of sales.orders in C2``. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

from airflow_hive_federation.clusters.advice_records import partition_day
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.model.partitions import unescape

_RULE = re.compile(
    r"\s*(?:last\s+(?P<days>\d{1,5})\s+days?|all)\s+of\s+(?P<table>[^\s.]+\.[^\s.]+)"
    r"(?:\s+by\s+(?P<key>\S+))?\s+in\s+(?P<cluster>[A-Za-z]\w*)\s*",
    re.IGNORECASE,
)
_FORM = "Write 'last 30 days of database.table in C2' or 'all of database.table in C2'."


@dataclass(frozen=True, kw_only=True, slots=True)
class KeepRule:
    """The part of a table that a secondary cluster keeps a current copy of.

    :param table: ``database.table``.
    :param cluster: the secondary cluster.
    :param days: the last days; all if ``None``.
    :param key: the partition key that holds the days; ``None`` if the table has only one such key.
    """

    table: str
    cluster: str
    days: int | None = None
    key: str | None = None

    def __str__(self) -> str:
        part = "all" if self.days is None else f"last {self.days} {'day' if self.days == 1 else 'days'}"
        by = f" by {self.key}" if self.key else ""
        return f"{part} of {self.table}{by} in {self.cluster}"

    @property
    def digest(self) -> str:
        """Tells one rule from another."""
        return hashlib.sha256(str(self).lower().encode("utf-8", "surrogateescape")).hexdigest()[:16]

    def chosen(self, names: Iterable[str], keys: Iterable[str], today: date) -> list[str]:
        """The partitions that the rule means.

        :param names: names of all partitions, ``day=2026-01-01``.
        :param keys: the partition keys of the table.
        :raises ConfigurationError: the table has no such key, or the rule does not say which of several.
        """
        if self.days is None:
            return list(names)
        days = {name: _days(name) for name in names}
        key = self._key([one.lower() for one in keys], days.values())
        chosen = []
        for name, found in days.items():
            day = found.get(key)
            # Days to come belong to the window: clocks and time zones differ.
            if day is not None and (today - day).days < self.days:
                chosen.append(name)
        return chosen

    def _key(self, keys: list[str], days: Iterable[dict[str, date | None]]) -> str:
        if self.key is not None:
            if self.key.lower() not in keys:
                raise self._refused(f"{self.table} has no partition key {self.key}")
            return self.key.lower()
        if len(keys) == 1:
            return keys[0]
        found = sorted({key for one in days for key, day in one.items() if day is not None})
        if len(found) > 1 or not keys:
            have = f"has several keys with days: {', '.join(found)}" if found else "has no partition keys"
            raise self._refused(f"{self.table} {have}")
        return found[0] if found else keys[0]

    def _refused(self, why: str) -> ConfigurationError:
        return ConfigurationError(
            f"The rule {str(self)!r} does not fit: {why}.",
            remedy="Name a key that holds days: 'last 30 days of database.table by day in C2'.",
        )


def read_rule(text: str) -> KeepRule:
    """Read a rule.

    :raises ConfigurationError: it is none.
    """
    found = _RULE.fullmatch(text)
    if found is None or found["days"] == "0" or (found["key"] and not found["days"]):
        raise ConfigurationError(f"{text!r} is no rule of copies.", remedy=_FORM)
    return KeepRule(
        table=found["table"].lower(),
        cluster=found["cluster"],
        days=int(found["days"]) if found["days"] else None,
        key=found["key"].lower() if found["key"] else None,
    )


def _days(name: str) -> dict[str, date | None]:
    """The keys of a partition's name, with the day that each value stands for."""
    found: dict[str, date | None] = {}
    for part in name.split("/"):
        key, _, value = part.partition("=")
        found[unescape(key)] = partition_day(unescape(value))
    return found
