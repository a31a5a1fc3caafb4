"""Writes advice on copies as text and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from airflow_hive_federation.clusters.advice_result import Advice, CopyAdvice, LeftOut
from airflow_hive_federation.clusters.keep_rules import KeepRule
from airflow_hive_federation.model.partitions import partition_name
from airflow_hive_federation.progress.quantities import several, size

#: The number of groups without copies that are listed.
MAX_LEFT_OUT = 10
_SHOWN = 100


def rule_of(copy: CopyAdvice) -> str | None:
    """Return the rule that keeps a copy current; ``None`` for single partitions, which are copied once."""
    if copy.partitions:
        return None
    return str(KeepRule(table=copy.table, cluster=copy.cluster, days=copy.days, key=_key_to_name(copy)))


def partition_names(copy: CopyAdvice) -> list[str]:
    """Return the names of the single partitions."""
    return [partition_name(copy.keys, values) for values in copy.partitions]


def title_of(copy: CopyAdvice) -> str:
    """Return a title for a copy."""
    if (rule := rule_of(copy)) is not None:
        return rule
    names = partition_names(copy)
    more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
    return f"{names[0]}{more} of {copy.table} in {copy.cluster}"


def reason_of(copy: CopyAdvice) -> str:
    """Return the reason for a copy, as a sentence."""
    updates = f", and {size(copy.kept_bytes)} to keep it current" if copy.kept_bytes else ""
    runs = f"{several(copy.runs, 'run')} of {several(copy.statements, 'statement')}"
    read = f"would read {size(copy.saved_bytes)} from {copy.source}"
    return f"{runs} {read}; the copy takes {size(copy.copied_bytes)}{updates}."


def in_words(advice: Advice) -> str:
    """Return the advice as a text of several lines."""
    return "\n".join(_lines(advice))


def as_json(advice: Advice) -> dict[str, Any]:
    """Return the advice as JSON values."""
    return {
        "days": advice.days,
        "budget_bytes": advice.budget_bytes,
        "statements": advice.statements,
        "runs": advice.runs,
        "refused": advice.refused,
        "crossing_bytes": advice.crossing_bytes,
        "saved_bytes": advice.saved_bytes,
        "copied_bytes": advice.copied_bytes,
        "copies": [
            {
                "table": copy.table,
                "cluster": copy.cluster,
                "from": copy.source,
                "rule": rule_of(copy),
                "days": copy.days,
                "key": copy.key,
                "partitions": partition_names(copy),
                "copied_bytes": copy.copied_bytes,
                "kept_bytes": copy.kept_bytes,
                "saved_bytes": copy.saved_bytes,
                "saved_per_byte": round(copy.rate, 2),
                "statements": copy.statements,
                "runs": copy.runs,
                "reason": reason_of(copy),
            }
            for copy in advice.copies
        ],
        "left_out": [
            {
                "statement": copy.template,
                "source": copy.source,
                "runs": copy.runs,
                "crossing_bytes": copy.crossing_bytes,
                "reason": copy.why,
            }
            for copy in advice.left_out
        ],
    }


def summary_of(advice: Advice) -> str:
    """Return a summary of the history, as one sentence."""
    return (
        f"{several(advice.runs, 'run')} of {several(advice.statements, 'statement')} in "
        f"{several(advice.days, 'day')}, {advice.refused:,} of them refused; they would read "
        f"{size(advice.crossing_bytes)} from other clusters."
    )


def _lines(advice: Advice) -> Iterator[str]:
    yield summary_of(advice)
    if advice.copies:
        yield ""
        yield from _table(advice.copies)
        yield ""
        yield (
            f"These copies take {size(advice.copied_bytes)} and save {size(advice.saved_bytes)} in "
            f"{several(advice.days, 'day')}."
        )
        yield from _next_steps(advice.copies)
    else:
        yield "No copy would save more bytes than it takes."
    if advice.left_out:
        yield ""
        yield "Not helped:"
        for group in advice.left_out[:MAX_LEFT_OUT]:
            yield from _left_out(group)
        if (more := len(advice.left_out) - MAX_LEFT_OUT) > 0:
            yield f"  and {several(more, 'statement')} more, which --json lists"


def _table(copies: Sequence[CopyAdvice]) -> Iterator[str]:
    rows = [("COPY", "TAKES", "TO KEEP", "SAVES", "PER BYTE", "READ BY")]
    rows += [
        (
            title_of(copy),
            size(copy.copied_bytes),
            size(copy.kept_bytes),
            size(copy.saved_bytes),
            f"{copy.rate:.1f}",
            f"{several(copy.runs, 'run')} of {several(copy.statements, 'statement')}",
        )
        for copy in copies
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:5], widths[1:5], strict=True)]
        yield "  ".join((*cells, row[5]))


def _next_steps(copies: Sequence[CopyAdvice]) -> Iterator[str]:
    if any(rule_of(copy) is not None for copy in copies):
        yield "Lines of this form are rules of the DAG keep_secondaries_current: last … days of, all of."
    for copy in copies:
        if copy.partitions:
            names = " ".join(f"--partition '{name}'" for name in partition_names(copy)[:3])
            dots = " …" if len(copy.partitions) > 3 else ""
            yield f"hive-federation cluster copy {copy.table} {copy.cluster} {names}{dots}"


def _left_out(left_out: LeftOut) -> Iterator[str]:
    read = "" if left_out.crossing_bytes is None else f" ({size(left_out.crossing_bytes)})"
    yield f"  {several(left_out.runs, 'run')} of {left_out.source}{read}: {left_out.why}"
    yield f"    {left_out.template[:_SHOWN]}{'…' if len(left_out.template) > _SHOWN else ''}"


def _key_to_name(copy: CopyAdvice) -> str | None:
    """Return the key of a window if the table has other partition keys beside it."""
    return copy.key if len(copy.keys) > 1 else None
