"""Converts conditions of a parsed statement into those of :mod:`.conditions`. Pure.

Unsupported expressions become undecided, so that their partitions count as read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import ClassVar

from sqlglot import exp

from airflow_hive_federation.clusters.predicates.conditions import (
    ANY,
    FALSE,
    NULL,
    TRUE,
    And,
    Call,
    Compare,
    Condition,
    Constant,
    Fixed,
    In,
    IsNull,
    Key,
    Like,
    Not,
    Or,
    Today,
    Undecided,
    Value,
)
from airflow_hive_federation.clusters.predicates.values import VARIABLE, WEEK_YEAR

_OPERATORS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}
#: The arguments of predicates that this module knows; another one may mean anything, even a negation.
_ARGUMENTS = frozenset(
    {"this", "expression", "expressions", "low", "high"}
    | {"negate", "symmetric", "query", "unnest", "field", "is_global"}
)
_ONE_ARGUMENT: dict[type[exp.Expr], str] = {
    exp.Year: "year",
    exp.Month: "month",
    exp.Day: "day",
    exp.Upper: "upper",
    exp.Lower: "lower",
    exp.TsOrDsToDate: "to_date",
}
#: Wrappers that sqlglot puts around the date or time argument of a function.
_TRANSPARENT = (exp.Paren, exp.TimeStrToTime, exp.TsOrDsToTimestamp)
#: Sides of a comparison that stand for the rows of a query.
_ROWS = (exp.Query, exp.All, exp.Any, exp.Subquery)
_CASTS = {
    "STRING": "to_string",
    "TEXT": "to_string",
    "VARCHAR": "to_string",
    "DATE": "to_date",
    "INT": "to_int",
    "BIGINT": "to_bigint",
}
_INTEGER = re.compile(r"-?[0-9]+")
_FORMAT = re.compile(r"[-/. _]|yyyy|MM|dd")
_ARITHMETIC: dict[type[exp.Expr], str] = {exp.Add: "add", exp.Sub: "subtract"}


class Conditions:
    """The conversion of the conditions of one statement.

    :param text: returns the text of a string in the tree, which may be a placeholder.
    :param uncertain: the texts of the statement's strings that engines may read differently, such as those
        with escapes.
    """

    def __init__(
        self, uncertain: frozenset[str] = frozenset(), text: Callable[[str], str] = lambda text: text
    ) -> None:
        self._uncertain = uncertain
        self._text = text

    def condition(self, node: exp.Expr | None) -> Condition:
        """Return the condition that a node of the tree represents."""
        match node:
            case exp.Paren():
                return self.condition(node.this)
            case exp.And() | exp.Or():
                made = And if isinstance(node, exp.And) else Or
                return made(tuple(self.condition(part) for part in node.flatten()))
            case exp.Not():
                return Not(self.condition(node.this))
            case exp.Boolean():
                return Fixed(TRUE if node.this else FALSE)
            case exp.Null():
                return Fixed(NULL)
        return self._leaf(node)

    def _leaf(self, node: exp.Expr | None) -> Condition:
        if not isinstance(node, exp.Predicate):
            return Fixed(ANY)
        if not node.args.keys() <= _ARGUMENTS and any(
            value for name, value in node.args.items() if name not in _ARGUMENTS
        ):
            return Undecided()
        made = self._predicate(node)
        # sqlglot 30 marks NOT LIKE and IS NOT NULL so; former versions put a Not around them.
        return Not(made) if node.args.get("negate") else made

    def _predicate(self, node: exp.Predicate) -> Condition:
        match node:
            case exp.Between():
                return self._between(node)
            case exp.In():
                return self._in(node)
            case exp.Is():
                return self._is(node)
            case exp.Like():
                return self._like(node)
        if type(node) in _OPERATORS:
            return self._compared(_OPERATORS[type(node)], node.this, node.expression)
        return Fixed(ANY)

    def _between(self, node: exp.Between) -> Condition:
        if node.args.get("symmetric"):
            return Undecided()
        value = self._value(node.this)
        low, high = self._value(node.args["low"]), self._value(node.args["high"])
        return And((Compare(">=", value, low), Compare("<=", value, high)))

    def _like(self, node: exp.Like) -> Condition:
        pattern = node.expression
        if isinstance(pattern, exp.Literal) and pattern.is_string and self._is_certain(pattern.name):
            return Like(self._value(node.this), self._text(pattern.name))
        return Undecided()

    def _compared(self, operator: str, left: exp.Expr, right: exp.Expr) -> Condition:
        if isinstance(left, exp.Tuple) or isinstance(right, exp.Tuple):
            return self._tuples(left, right) if operator == "=" else Undecided()
        if isinstance(left, _ROWS) or isinstance(right, _ROWS):
            return Undecided()
        return Compare(operator, self._value(left), self._value(right))

    def _tuples(self, left: exp.Expr, right: exp.Expr) -> Condition:
        if not (isinstance(left, exp.Tuple) and isinstance(right, exp.Tuple)):
            return Undecided()
        if len(left.expressions) != len(right.expressions):
            return Undecided()
        pairs = zip(left.expressions, right.expressions, strict=True)
        return And(tuple(self._compared("=", *pair) for pair in pairs))

    def _in(self, node: exp.In) -> Condition:
        options = node.expressions
        if not options or any(
            node.args.get(argument) for argument in ("query", "unnest", "field", "is_global")
        ):
            return Undecided()
        if isinstance(node.this, exp.Tuple):
            return Or(tuple(self._tuples(node.this, option) for option in options))
        if any(isinstance(option, exp.Query | exp.Subquery) for option in options):
            return Undecided()
        return In(self._value(node.this), tuple(self._value(option) for option in options))

    def _is(self, node: exp.Is) -> Condition:
        match node.expression:
            case exp.Null():
                return IsNull(self._value(node.this))
            case exp.Boolean():
                value = Constant(bool(node.expression.this))
                return Compare("<=>", self._value(node.this), value)
        return Undecided()

    # -- values --------------------------------------------------------------------------------------------

    def _value(self, node: exp.Expr | None) -> Value:
        while isinstance(node, _TRANSPARENT):
            node = node.this
        match node:
            case exp.Column():
                return _key(node)
            case exp.Literal():
                return self._literal(node)
            case exp.Null():
                return Constant(None)
            case exp.Boolean():
                return Constant(bool(node.this))
            case exp.CurrentDate():
                return Undecided() if node.this else Today()
        return self._call(node)

    def _literal(self, node: exp.Literal) -> Value:
        if node.is_string:
            return Constant(self._text(node.name)) if self._is_certain(node.name) else Undecided()
        try:
            number = Decimal(node.name)
        except InvalidOperation:
            return Undecided()
        # Old versions of sqlglot represent the days of ``date_sub`` as a product with the literal -1.
        return Constant(int(node.name) if _INTEGER.fullmatch(node.name) else number)

    def _is_certain(self, text: str) -> bool:
        return text not in self._uncertain and VARIABLE not in text

    def _call(self, node: exp.Expr | None) -> Value:
        if node is None:
            return Undecided()
        kind = type(node)
        if kind in _ONE_ARGUMENT:
            if node.args.get("format"):
                # Only the form yyyy-MM-dd is computed here.
                return Undecided()
            return Call(_ONE_ARGUMENT[kind], (self._value(node.this),))
        if kind in _ARITHMETIC:
            return Call(_ARITHMETIC[kind], (self._value(node.this), self._value(node.expression)))
        convert = self._CALLS.get(kind)
        return convert(self, node) if convert else Undecided()

    def _negated(self, node: exp.Expr) -> Value:
        value = self._value(node.this)
        if isinstance(value, Constant) and isinstance(value.value, int | Decimal):
            return Constant(-value.value)
        return Undecided()

    def _product(self, node: exp.Expr) -> Value:
        """Convert ``n * -1``, which is sqlglot's form of the days of ``date_sub``."""
        values = [self._value(node.this), self._value(node.expression)]
        numbers = [
            factor.value for factor in values if isinstance(factor, Constant) and type(factor.value) is int
        ]
        return Constant(numbers[0] * numbers[1]) if len(numbers) == 2 else Undecided()

    def _shifted(self, node: exp.Expr) -> Value:
        unit = node.args.get("unit")
        if unit is not None and unit.name.upper() != "DAY":
            return Undecided()
        days = self._value(node.expression)
        if isinstance(node, exp.DateSub):
            days = Call("subtract", (Constant(0), days))
        return Call("date_add", (self._value(node.this), days))

    def _cast(self, node: exp.Expr) -> Value:
        to = node.args["to"]
        name = "" if to.expressions or node.args.get("format") else str(to.this.name)
        function = _CASTS.get(name)
        return Call(function, (self._value(node.this),)) if function else Undecided()

    def _substring(self, node: exp.Expr) -> Value:
        parts = [node.this, node.args.get("start"), node.args.get("length")]
        arguments = parts if parts[2] is not None else parts[:2]
        return Call("substring", tuple(self._value(argument) for argument in arguments))

    def _concat(self, node: exp.Expr) -> Value:
        return Call("concat", tuple(self._value(part) for part in node.expressions))

    def _formatted(self, node: exp.Expr) -> Value:
        pattern = None if WEEK_YEAR in self._uncertain else _java_format(node.args.get("format"))
        value = self._value(node.this)
        if isinstance(node, exp.UnixToStr):
            # ``from_unixtime(unix_timestamp(), …)`` was the usual form of the present day before Hive had
            # ``current_date``.
            now = isinstance(node.this, exp.StrToUnix) and isinstance(node.this.this, exp.CurrentTimestamp)
            value = Today() if now else Undecided()
        return Call("date_format", (value, Constant(pattern))) if pattern else Undecided()

    _CALLS: ClassVar[dict[type[exp.Expr], Callable[[Conditions, exp.Expr], Value]]] = {
        exp.Neg: _negated,
        exp.Mul: _product,
        exp.TsOrDsAdd: _shifted,
        exp.DateAdd: _shifted,
        exp.DateSub: _shifted,
        exp.Cast: _cast,
        exp.TryCast: _cast,
        exp.Substring: _substring,
        exp.Concat: _concat,
        exp.TimeToStr: _formatted,
        exp.UnixToStr: _formatted,
    }


def _key(column: exp.Column) -> Value:
    if not isinstance(column.this, exp.Identifier) or column.args.get("catalog"):
        return Undecided()
    table, database = column.args.get("table"), column.args.get("db")
    return Key(column.this.this.lower(), (table and _name(table)) or None, database and _name(database))


def _name(part: exp.Expr) -> str:
    # ``name`` is slow.
    return str(part.this if type(part) is exp.Identifier else part.name).lower()


def _java_format(node: exp.Expr | None) -> str | None:
    """Return the statement's date format if it contains only years, months and days.

    sqlglot translates Java's letters into those of strftime, in some versions followed by the word
    ``strict``.
    """
    if not isinstance(node, exp.Literal) or not node.is_string:
        return None
    text = node.name.replace("strict", "")
    for theirs, ours in {"%Y": "yyyy", "%m": "MM", "%d": "dd"}.items():
        text = text.replace(theirs, ours)
    return text if text and not _FORMAT.sub("", text) else None
