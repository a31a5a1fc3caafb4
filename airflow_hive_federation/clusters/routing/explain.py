"""Writes decisions of the router as text and JSON, and finds copies that a refused statement needs. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from airflow_hive_federation.clusters.routing.decision import Decision, Group, InputUse, OutputUse, Rule
from airflow_hive_federation.clusters.statements.statement import TableName
from airflow_hive_federation.progress.quantities import size


@dataclass(frozen=True, kw_only=True)
class CopyStep:
    """Rows of one table that a cluster lacks.

    :param partitions: the number of partitions; ``None`` for an unpartitioned table.
    :param bytes: the size; ``None`` if it is unknown.
    """

    table: TableName
    source: str
    target: str
    partitions: int | None = None
    examples: tuple[str, ...] = ()
    bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class CopyPlan:
    """All copies that a cluster needs to run a statement.

    :param bytes: the total size; ``None`` if any size is unknown.
    """

    cluster: str
    steps: tuple[CopyStep, ...]
    bytes: int | None


def cheapest_copies(decision: Decision) -> CopyPlan | None:
    """Return the smallest set of copies that would let some cluster run a refused statement.

    Each cluster that was tried needs exactly the partitions that it lacks, so the smallest of these plans is
    optimal. Plans with unknown sizes come last; among them, the number of partitions decides.

    :return: the copies; ``None`` if the statement runs, or if no copies help.
    """
    if decision.cluster is not None:
        return None
    plans = [_plan(attempt.cluster, decision) for attempt in decision.attempts]
    possible = [plan for plan in plans if plan is not None]
    return min(possible, key=_cost, default=None)


def _plan(cluster: str, decision: Decision) -> CopyPlan | None:
    steps = tuple(step for use in decision.inputs for step in _steps(use, cluster))
    lacking = sum(len(use.problems(cluster)) for use in decision.inputs)
    attempt = next(tried for tried in decision.attempts if tried.cluster == cluster)
    # Outputs of another cluster, and temporary tables, cannot be copied there.
    if not steps or len(attempt.problems) != lacking or len(steps) != lacking:
        return None
    sizes = [step.bytes for step in steps]
    total = None if None in sizes else sum(known for known in sizes if known is not None)
    return CopyPlan(cluster=cluster, steps=steps, bytes=total)


def _steps(use: InputUse, cluster: str) -> Iterator[CopyStep]:
    if use.table.database is None:
        return  # a temporary table
    for group in use.groups:
        if cluster not in group.readable:
            yield CopyStep(
                table=use.table,
                source=group.readable[0],
                target=cluster,
                partitions=group.partitions,
                examples=group.examples,
                bytes=group.bytes,
            )


def _cost(plan: CopyPlan) -> tuple[bool, int, int]:
    return plan.bytes is None, plan.bytes or 0, sum(step.partitions or 1 for step in plan.steps)


def without_text(decision: Decision) -> Decision:
    """Return the decision without the words that its reason quotes of a statement that cannot be analysed."""
    if (unread := decision.unanalysable) is None:
        return decision
    at = f"It cannot be analysed at line {unread.line}, column {unread.column}; the log has the reason."
    return replace(decision, reason=at)


# -- words ---------------------------------------------------------------------------------------------------


def in_words(decision: Decision) -> str:
    """Return the decision as a text of several lines."""
    return "\n".join(_lines(decision))


def _lines(decision: Decision) -> Iterator[str]:
    yield f"Cluster: {decision.cluster or 'none'}"
    yield f"Rule: {decision.rule}. {decision.reason}"
    for output in decision.outputs:
        yield f"Writes {_output(output)}"
    for use in decision.inputs:
        through = f", through the view {' and '.join(map(str, use.views))}" if use.views else ""
        yield f"Reads {use.table}{through}: {_where(use)}"
        if use.total is not None:
            yield from (f"  {_group(group)}" for group in use.groups)
    for attempt in decision.attempts:
        verdict = "; ".join(attempt.problems) or "it has all that the statement needs"
        yield f"Tried {attempt.cluster}: {verdict}"
    plan = cheapest_copies(decision)
    if plan is not None:
        yield f"It could run in {plan.cluster} after these copies, the cheapest ({_size(plan.bytes)}):"
        for step in plan.steps:
            object_title = f"{step.table}{_names(step.partitions, step.examples)}"
            yield f"  {object_title} from {step.source} to {step.target} ({_size(step.bytes)})"


def _output(output: OutputUse) -> str:
    if output.unplaced:
        return f"{output.table}: {output.unplaced}"
    if output.new:
        return f"{output.table}: new, created in the cluster that runs the statement"
    if not output.primaries:
        return f"{output.table}: a view, which is in no cluster"
    also = f", with partitions of another: {', '.join(output.examples)}" if output.examples else ""
    return f"{output.table}: primary cluster {' and '.join(output.primaries)}{also}"


def _where(use: InputUse) -> str:
    if use.unplaced:
        return use.unplaced
    if use.total is not None:
        read = sum(group.partitions or 0 for group in use.groups)
        return f"{read:,} of {use.total:,} partitions; primary cluster {use.primary}"
    if not use.groups:
        return f"its definition only; primary cluster {use.primary}"
    return _group(use.groups[0])


def _group(group: Group) -> str:
    names = _names(group.partitions, group.examples).strip()
    location = f"in {', '.join(group.readable)}"
    stale = f", stale in {', '.join(group.stale)}" if group.stale else ""
    return f"{names + ': ' if names else ''}{location}{stale} ({_size(group.bytes)})"


def _names(partitions: int | None, examples: tuple[str, ...]) -> str:
    return str(Group(readable=(), partitions=partitions, examples=examples))


def _size(size_bytes: int | None) -> str:
    return "size unknown" if size_bytes is None else size(size_bytes)


# -- JSON ----------------------------------------------------------------------------------------------------


def as_json(decision: Decision) -> dict[str, Any]:
    """Return the decision as JSON values, which are safe for XCom."""
    plan = cheapest_copies(decision)
    return {
        "cluster": decision.cluster,
        "rule": str(decision.rule),
        "reason": decision.reason,
        "wanted": decision.wanted,
        "inputs": [_input_json(use) for use in decision.inputs],
        "outputs": [
            {
                "table": str(output.table),
                "new": output.new,
                "primaries": list(output.primaries),
                "partitions": list(output.examples),
                "problem": output.unplaced or None,
            }
            for output in decision.outputs
        ],
        "attempts": [
            {"cluster": attempt.cluster, "problems": list(attempt.problems)} for attempt in decision.attempts
        ],
        "unanalysable": str(decision.unanalysable) if decision.rule is Rule.UNANALYSABLE else None,
        "cheapest_copies": _plan_json(plan) if plan is not None else None,
    }


def _input_json(use: InputUse) -> dict[str, object]:
    return {
        "table": str(use.table),
        "views": [str(view) for view in use.views],
        "primary": use.primary,
        "partitions": use.total,
        "problem": use.unplaced or None,
        "read": [
            {
                "clusters": list(group.readable),
                "stale": list(group.stale),
                "partitions": group.partitions,
                "examples": list(group.examples),
                "bytes": group.bytes,
            }
            for group in use.groups
        ],
    }


def _plan_json(plan: CopyPlan) -> dict[str, object]:
    return {
        "cluster": plan.cluster,
        "bytes": plan.bytes,
        "copies": [
            {
                "table": str(step.table),
                "from": step.source,
                "to": step.target,
                "partitions": step.partitions,
                "examples": list(step.examples),
                "bytes": step.bytes,
            }
            for step in plan.steps
        ],
    }
