"""Evaluates conditions on partition keys, to find the partitions that may satisfy them. Pure.

A condition in SQL has three outcomes. An undecided condition is represented by the set of its possible
outcomes, so that ``NOT``, ``AND`` and ``OR`` lose no information: the outcome of a condition is a set of
bits. A partition counts as read unless its condition cannot be true.

Engines differ in how they compare a string key with a number or a date. A comparison is decided only where
Hive and Spark agree; see :mod:`~airflow_hive_federation.clusters.predicates.values`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from airflow_hive_federation.clusters.placement import Column, Partitions
from airflow_hive_federation.clusters.predicates.values import (
    DEFAULT_PARTITION,
    UNDECIDED,
    Scalar,
    called,
    compared,
    like,
    typed,
)

TRUE, FALSE, NULL = 1, 2, 4
ANY = TRUE | FALSE | NULL


@dataclass(frozen=True, slots=True)
class Key:
    """A column of a source; after binding to a table, one of its partition keys.

    :param qualifier: the alias or table before its name, in lower case.
    """

    name: str
    qualifier: str | None = None
    database: str | None = None


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal."""

    value: Scalar


@dataclass(frozen=True, slots=True)
class Today:
    """``current_date``."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function of :mod:`~airflow_hive_federation.clusters.predicates.values`."""

    function: str
    arguments: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Undecided:
    """A value or condition that routing cannot determine."""


Value = Key | Constant | Today | Call | Undecided


@dataclass(frozen=True, slots=True)
class Compare:
    """``left operator right``; the operator is ``=``, ``<>``, ``<``, ``<=``, ``>``, ``>=`` or ``<=>``."""

    operator: str
    left: Value
    right: Value


@dataclass(frozen=True, slots=True)
class In:
    """``value IN (options)``."""

    value: Value
    options: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    """``value IS NULL``."""

    value: Value


@dataclass(frozen=True, slots=True)
class Like:
    """``value LIKE 'pattern'``."""

    value: Value
    pattern: str


@dataclass(frozen=True, slots=True)
class Not:
    """``NOT condition``."""

    condition: Condition


@dataclass(frozen=True, slots=True)
class And:
    """The conjunction of the conditions."""

    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """The disjunction of the conditions."""

    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Fixed:
    """A condition whose possible outcomes do not depend on the partition."""

    outcomes: int


Condition = Compare | In | IsNull | Like | Not | And | Or | Fixed | Undecided
#: The condition of a clause that no row satisfies.
NEVER = Fixed(FALSE | NULL)
_Leaf = Compare | In | IsNull | Like


def bound(condition: Condition, bind: Callable[[Key], Key | None]) -> Condition:
    """Return the condition with other columns; columns that ``bind`` maps to ``None`` become undecided."""
    match condition:
        case And(conditions) | Or(conditions):
            return type(condition)(tuple(bound(part, bind) for part in conditions))
        case Not(inner):
            return Not(bound(inner, bind))
        case Compare(sign, left, right):
            return Compare(sign, _bound_value(left, bind), _bound_value(right, bind))
        case In(value, options):
            return In(_bound_value(value, bind), tuple(_bound_value(part, bind) for part in options))
        case IsNull(value) | Like(value, _):
            return replace(condition, value=_bound_value(value, bind))
    return condition


def _bound_value(value: Value, bind: Callable[[Key], Key | None]) -> Value:
    match value:
        case Key():
            return bind(value) or Undecided()
        case Call(function, arguments):
            return Call(function, tuple(_bound_value(argument, bind) for argument in arguments))
        case _:
            return value


def conjuncts(condition: Condition) -> Iterator[Condition]:
    """Yield the conditions that a condition joins with ``AND``."""
    if isinstance(condition, And):
        for part in condition.conditions:
            yield from conjuncts(part)
    else:
        yield condition


def columns_of(condition: Condition | Value) -> set[Key]:
    """Return the columns that a condition or value uses."""
    columns: set[Key] = set()
    parts: list[Condition | Value] = [condition]
    while parts:
        part = parts.pop()
        # Most parts are keys, constants and comparisons, and ``match`` is slow.
        if type(part) is Key:
            columns.add(part)
        elif type(part) is Compare:
            parts += (part.left, part.right)
        elif type(part) is not Constant:
            parts += _parts(part)
    return columns


def _parts(condition: Condition | Value) -> Sequence[Condition | Value]:
    match condition:
        case Call(_, inner) | And(inner) | Or(inner):
            return inner
        case Not(only) | IsNull(only) | Like(only, _):
            return (only,)
        case In(value, options):
            return (value, *options)
    return ()


def keys_of(condition: Condition | Value) -> frozenset[str]:
    """Return the names of the keys that a bound condition or value uses."""
    return frozenset(key.name for key in columns_of(condition))


def rejects_nulls(condition: Condition) -> bool:
    """Return whether a condition cannot be true if all its keys are null, as behind an outer join."""
    nulls = dict.fromkeys(keys_of(condition))
    return not _one(condition, nulls, None) & TRUE


def cannot_be_true(condition: Condition) -> bool:
    """Return whether a condition is false or null whatever the values of its columns."""
    return not _one(condition, {}, None) & TRUE


def may_be_read(
    condition: Condition,
    partitions: Partitions,
    keys: Sequence[tuple[str, str]],
    today: Sequence[date],
) -> NDArray[np.bool_]:
    """Return the partitions that may satisfy a condition, as one flag per partition.

    :param keys: the names and Hive types of the table's partition keys, in their order.
    :param today: the possible days of ``current_date``; several if the statement may begin after midnight.
    """
    flags = np.zeros(len(partitions), dtype=np.bool_)
    if len(partitions):
        columns = _Columns(partitions, keys)
        for day in today:
            flags |= (columns.outcomes(condition, day) & TRUE).astype(np.bool_)
    return flags


class _Columns:
    """The partitions of a table, with the values of their keys by type."""

    def __init__(self, partitions: Partitions, keys: Sequence[tuple[str, str]]) -> None:
        self._count = len(partitions)
        self._columns = {
            name: (column, kind) for (name, kind), column in zip(keys, partitions.columns, strict=True)
        }

    def outcomes(self, condition: Condition, day: date) -> NDArray[np.uint8]:
        match condition:
            case And(conditions):
                return self._combined(_AND, conditions, TRUE, day)
            case Or(conditions):
                return self._combined(_OR, conditions, FALSE, day)
            case Not(inner):
                return _NOT[self.outcomes(inner, day)]
            case Fixed(outcomes):
                return self._all(outcomes)
            case Undecided():
                return self._all(ANY)
            case _:
                return self._leaf(condition, day)

    def _combined(
        self, table: NDArray[np.uint8], conditions: Sequence[Condition], first: int, day: date
    ) -> NDArray[np.uint8]:
        if not conditions:
            return self._all(first)
        combined, *others = (self.outcomes(condition, day) for condition in conditions)
        for other in others:
            combined = table[combined, other]
        return combined

    def _leaf(self, leaf: _Leaf, day: date) -> NDArray[np.uint8]:
        names = sorted(keys_of(leaf) & self._columns.keys())
        if not names:
            return self._all(_one(leaf, {}, day))
        if len(names) == 1:
            (name,) = names
            column, kind = self._columns[name]
            by_value = _of_texts(leaf, column, day) if kind == "string" else None
            if by_value is None:
                test = _test(leaf, name, day)
                by_value = np.array([test(value) for value in self._typed(name)], dtype=np.uint8)
            return by_value[column.codes]
        columns = [self._columns[name][0] for name in names]
        packed = np.zeros(self._count, dtype=np.int64)
        for column in columns:
            packed = packed * len(column.distinct) + column.codes
        _, first, codes = np.unique(packed, return_index=True, return_inverse=True)
        row_test = _row_test(leaf, names, day)
        values = [
            [typed_values[code] for code in column.codes[first].tolist()]
            for column, typed_values in zip(columns, map(self._typed, names), strict=True)
        ]
        by_row = np.array([row_test(row) for row in zip(*values, strict=True)], dtype=np.uint8)
        return by_row[codes.reshape(-1)]

    def _typed(self, name: str) -> list[Scalar]:
        column, kind = self._columns[name]
        if kind not in column.by_type:
            column.by_type[kind] = [typed(value, kind) for value in column.distinct]
        return column.by_type[kind]

    def _all(self, outcomes: int) -> NDArray[np.uint8]:
        return np.full(self._count, outcomes, dtype=np.uint8)


def _one(condition: Condition, values: Mapping[str, Scalar], day: date | None) -> int:
    """Return the possible outcomes for one partition."""
    match condition:
        case Not(inner):
            return int(_NOT[_one(inner, values, day)])
        case And(conditions) | Or(conditions):
            table, outcomes = (_AND, TRUE) if isinstance(condition, And) else (_OR, FALSE)
            for part in conditions:
                outcomes = int(table[outcomes, _one(part, values, day)])
            return outcomes
        case Fixed(outcomes):
            return outcomes
        case Undecided():
            return ANY
    return _one_leaf(condition, values, day)


def _one_leaf(leaf: _Leaf, values: Mapping[str, Scalar], day: date | None) -> int:
    match leaf:
        case Compare(sign, left, right):
            return compared(sign, _value(left, values, day), _value(right, values, day))
        case In(value, options):
            return _one_of(_value(value, values, day), [_value(option, values, day) for option in options])
        case Like(value, pattern):
            return like(_value(value, values, day), pattern)
    operand = _value(leaf.value, values, day)
    return TRUE | FALSE if operand is UNDECIDED else TRUE if operand is None else FALSE


def _test(leaf: _Leaf, name: str, day: date | None) -> Callable[[Scalar], int]:
    """Return a function from the value of the leaf's only key to the outcomes of the leaf."""

    def slow(value: Scalar) -> int:
        return _one_leaf(leaf, {name: value}, day)

    if isinstance(leaf, In) and isinstance(leaf.value, Key):
        texts = {
            option.value
            for option in leaf.options
            if isinstance(option, Constant) and type(option.value) is str
        }
        if len(texts) == len(set(leaf.options)) and DEFAULT_PARTITION not in texts:
            # Lists of a thousand values are common; among texts, a membership test has the result of all
            # comparisons.
            return lambda value: (TRUE if value in texts else FALSE) if type(value) is str else slow(value)
    if isinstance(leaf, Compare) and isinstance(leaf.left, Key) and not keys_of(leaf.right):
        sign, right = leaf.operator, _value(leaf.right, {}, day)
        return lambda value: compared(sign, value, right)
    return slow


def _of_texts(leaf: _Leaf, column: Column, day: date | None) -> NDArray[np.uint8] | None:
    """Compare a string key with a constant text, for all values at once; ``None`` for other leaves."""
    if not isinstance(leaf, Compare) or not isinstance(leaf.left, Key) or leaf.operator not in _VECTORS:
        return None
    # A key has no value here, and no call of a key has a text.
    right = _value(leaf.right, {}, day)
    # NumPy ignores zero bytes at the end of a string.
    if not isinstance(right, str) or right == DEFAULT_PARTITION or "\0" in right:
        return None
    if leaf.operator == "=":
        outcomes = np.full(len(column.distinct), FALSE, dtype=np.uint8)
        if right in column.code_of:
            outcomes[column.code_of[right]] = TRUE
    else:
        outcomes = _FLAGS[_VECTORS[leaf.operator](column.texts, right).view(np.uint8)]
    if column.default is not None:
        outcomes[column.default] = NULL
    return outcomes


def _row_test(leaf: _Leaf, names: Sequence[str], day: date | None) -> Callable[[Sequence[Scalar]], int]:
    """Return a function from the values of the leaf's keys to the outcomes of the leaf."""
    if isinstance(leaf, Compare):
        sign, left, right = leaf.operator, _reader(leaf.left, names, day), _reader(leaf.right, names, day)
        return lambda row: compared(sign, left(row), right(row))
    return lambda row: _one_leaf(leaf, dict(zip(names, row, strict=True)), day)


def _reader(value: Value, names: Sequence[str], day: date | None) -> Callable[[Sequence[Scalar]], Scalar]:
    """Return a function from the values of keys to the value."""
    if not keys_of(value):
        constant = _value(value, {}, day)
        return lambda _: constant
    if isinstance(value, Key):
        # A name that is no key has no value.
        return itemgetter(names.index(value.name)) if value.name in names else lambda _: UNDECIDED
    assert isinstance(value, Call)
    function, parts = value.function, [_reader(argument, names, day) for argument in value.arguments]
    return lambda row: called(function, [part(row) for part in parts])


def _one_of(value: Scalar, options: Sequence[Scalar]) -> int:
    outcomes = FALSE
    for option in options:
        outcome = compared("=", value, option)
        if outcome == TRUE:
            return TRUE
        outcomes = int(_OR[outcomes, outcome])
    return outcomes


def _value(value: Value, values: Mapping[str, Scalar], day: date | None) -> Scalar:
    match value:
        case Constant(scalar):
            return scalar
        case Key(name):
            return values.get(name, UNDECIDED)
        case Today():
            return UNDECIDED if day is None else day
        case Call(function, arguments):
            return called(function, [_value(argument, values, day) for argument in arguments])
        case _:
            return UNDECIDED


def _table(rule: Callable[[int, int], int]) -> NDArray[np.uint8]:
    """Return the table of a connective's possible outcomes, by the outcomes of its two sides."""
    bits = (TRUE, FALSE, NULL)
    table = np.zeros((8, 8), dtype=np.uint8)
    for left in range(8):
        for right in range(8):
            for a in bits:
                for b in bits:
                    if left & a and right & b:
                        table[left, right] |= rule(a, b)
    return table


_VECTORS: dict[str, Callable[..., NDArray[np.bool_]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
#: The outcomes of a comparison that is false or true.
_FLAGS = np.array([FALSE, TRUE], dtype=np.uint8)
_AND = _table(lambda a, b: FALSE if FALSE in {a, b} else NULL if NULL in {a, b} else TRUE)
_OR = _table(lambda a, b: TRUE if TRUE in {a, b} else NULL if NULL in {a, b} else FALSE)
_NOT = np.array([(m & NULL) | (m & TRUE) << 1 | (m & FALSE) >> 1 for m in range(8)], dtype=np.uint8)
