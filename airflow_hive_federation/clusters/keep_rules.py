"""Parses rules that keep copies current: ``last 30 days of sales.orders in C2``. Pure."""

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
    r"(?:\s+by\s+(?P<key>\S+))?\s+in\s+(?P<cluster>[A-Za-z]\w*)(?P<drop>\s+dropping\s+older)?\s*",
    re.IGNORECASE,
)
_FORM = (
    "Write 'last 30 days of database.table in C2' (with 'dropping older' at its end to drop the copies of "
    "days before these) or 'all of database.table in C2'."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class KeepRule:
    """The part of a table of which a secondary cluster keeps a current copy.

    :param table: ``database.table``.
    :param cluster: the secondary cluster.
    :param days: the number of the last days; ``None`` means all data.
    :param key: the partition key that contains the days; ``None`` if the table has only one such key, and
        with ``drop_older`` only one key.
    :param drop_older: drop the copies of partitions whose day is before the window.
    """

    table: str
    cluster: str
    days: int | None = None
    key: str | None = None
    drop_older: bool = False

    def __str__(self) -> str:
        part = "all" if self.days is None else f"last {self.days} {'day' if self.days == 1 else 'days'}"
        by = f" by {self.key}" if self.key else ""
        drop = " dropping older" if self.drop_older else ""
        return f"{part} of {self.table}{by} in {self.cluster}{drop}"

    @property
    def digest(self) -> str:
        """A digest that identifies the rule."""
        return hashlib.sha256(str(self).lower().encode("utf-8", "surrogateescape")).hexdigest()[:16]

    def chosen(self, names: Iterable[str], keys: Iterable[str], today: date) -> list[str]:
        """Return the partitions that the rule covers.

        :param names: the names of all partitions, ``day=2026-01-01``.
        :param keys: the partition keys of the table.
        :raises ConfigurationError: the table lacks the key, or has several keys with days and the rule names
            none, or no partition has a day in the key.
        """
        if self.days is None:
            return list(names)
        # Future days belong to the window, because clocks and time zones differ.
        return [name for name, age in self._ages(names, keys, today).items() if age < self.days]

    def older(self, names: Iterable[str], keys: Iterable[str], today: date) -> list[str]:
        """Return the partitions whose copies the rule drops: those with a day before the window.

        A partition without a day in the key is not among them. The parameters and errors are those of
        :meth:`chosen`.
        """
        if self.days is None or not self.drop_older:
            return []
        return [name for name, age in self._ages(names, keys, today).items() if age >= self.days]

    def _ages(self, names: Iterable[str], keys: Iterable[str], today: date) -> dict[str, int]:
        """Return the ages in days of the partitions with a day in the key."""
        days = {name: _days(name) for name in names}
        key = self._key([key_name.lower() for key_name in keys], days.values())
        ages = {
            name: (today - day).days for name, by_key in days.items() if (day := by_key.get(key)) is not None
        }
        if days and not ages:
            raise self._refused(f"no partition of {self.table} has a day in {key}")
        return ages

    def _key(self, keys: list[str], days: Iterable[dict[str, date | None]]) -> str:
        if self.key is not None:
            if self.key.lower() not in keys:
                raise self._refused(f"{self.table} has no partition key {self.key}")
            return self.key.lower()
        if len(keys) == 1:
            return keys[0]
        if not keys:
            raise ConfigurationError(
                f"The rule {str(self)!r} does not fit: {self.table} has no partition keys.",
                remedy=f"Write 'all of {self.table} in {self.cluster}'.",
            )
        if self.drop_older:
            # A number of a customer, for instance, may look like a day.
            raise self._refused(f"{self.table} has several partition keys")
        keys_with_days = sorted({key for by_key in days for key, day in by_key.items() if day is not None})
        if len(keys_with_days) > 1:
            raise self._refused(f"{self.table} has several keys with days: {', '.join(keys_with_days)}")
        return keys_with_days[0] if keys_with_days else keys[0]

    def _refused(self, why: str) -> ConfigurationError:
        return ConfigurationError(
            f"The rule {str(self)!r} does not fit: {why}.",
            remedy="Name a key that holds days: 'last 30 days of database.table by day in C2'.",
        )


def read_rule(text: str) -> KeepRule:
    """Parse a rule.

    :raises ConfigurationError: the text is no rule.
    """
    match = _RULE.fullmatch(text)
    if match is None or match["days"] == "0" or (not match["days"] and (match["key"] or match["drop"])):
        raise ConfigurationError(f"{text!r} is no rule of copies.", remedy=_FORM)
    return KeepRule(
        table=match["table"].lower(),
        cluster=match["cluster"],
        days=int(match["days"]) if match["days"] else None,
        key=match["key"].lower() if match["key"] else None,
        drop_older=match["drop"] is not None,
    )


def _days(name: str) -> dict[str, date | None]:
    """Return the keys of a partition's name, with the day in each value."""
    days_by_key: dict[str, date | None] = {}
    for part in name.split("/"):
        key, _, value = part.partition("=")
        days_by_key[unescape(key)] = partition_day(unescape(value))
    return days_by_key
