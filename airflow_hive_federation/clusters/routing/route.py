"""The cluster that runs a statement: the rules of Hive's design "Hive across Multiple Data Centers". Pure.

A statement runs in one cluster. Its outputs are written where their primaries are; each of its inputs must be
there whole and fresh, as far as the statement reads it. Without an output, the primaries of the inputs are
tried one by one, in the order in which the statement names them. A session that chose a cluster gets that one
or an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from enum import StrEnum

from airflow_hive_federation.clusters.placement import CatalogFacts, Clusters, Session
from airflow_hive_federation.clusters.routing.decision import Attempt, Decision, InputUse, OutputUse, Rule
from airflow_hive_federation.clusters.routing.inputs import input_uses
from airflow_hive_federation.clusters.routing.outputs import output_uses
from airflow_hive_federation.clusters.statements.grammar import analyse
from airflow_hive_federation.clusters.statements.reads import reads
from airflow_hive_federation.clusters.statements.statement import (
    Analysis,
    Statement,
    Unanalysable,
    UnreadableError,
    UseCluster,
    UseDatabase,
)
from airflow_hive_federation.errors import RoutingError, UnanalysableError, UnknownClusterError


class Policy(StrEnum):
    """The fate of statements whose tables are not known for certain."""

    #: They are refused.
    STRICT = "strict"
    #: They run in the session's cluster, else in the default one.
    DEFAULT = "default"


def route(
    text: str,
    catalog: CatalogFacts,
    clusters: Clusters,
    session: Session | None = None,
    *,
    policy: Policy = Policy.STRICT,
    today: Sequence[date] = (),
) -> Decision:
    """Choose the cluster that runs one statement.

    :param today: the days that ``current_date`` may mean; this machine's by default. Give two if the
        statement may begin after midnight.
    :raises RoutingError: no cluster can run it; the message names tables and partitions.
    :raises UnanalysableError: its tables are not known for certain, and the policy is strict.
    :raises UnknownClusterError: the session's cluster, or that of ``USE CLUSTER``, is not configured.
    """
    decision = decide(text, catalog, clusters, session, policy=policy, today=today)
    if decision.cluster is not None:
        return decision
    raise failure(decision, clusters)


def decide(
    text: str,
    catalog: CatalogFacts,
    clusters: Clusters,
    session: Session | None = None,
    *,
    policy: Policy = Policy.STRICT,
    today: Sequence[date] = (),
) -> Decision:
    """Do as :func:`route`, but return the decision without a cluster where that raises."""
    session = session or Session()
    analysis = analyse(text)
    wanted = analysis.cluster if isinstance(analysis, UseCluster) else session.cluster
    if wanted is not None and wanted not in clusters:
        reason = f"No cluster {wanted!r} is configured."
        return Decision(rule=Rule.UNKNOWN_CLUSTER, reason=reason, wanted=wanted)
    if isinstance(analysis, UseCluster | UseDatabase):
        return Decision(
            cluster=wanted or clusters.default, rule=Rule.SESSION, reason="It changes the session only."
        )
    if isinstance(analysis, Statement):
        try:
            found = reads(analysis, catalog, session)
            inputs = input_uses(found, catalog, clusters, tuple(today) or (date.today(),))  # noqa: DTZ011
            outputs = output_uses(analysis.outputs, catalog, clusters, session)
        except UnreadableError as error:
            analysis = error.at(text)
        else:
            return _decided(inputs, outputs, clusters, session)
    return _unanalysed(analysis, clusters, session, policy)


def next_session(text: str, session: Session, clusters: Clusters, decision: Decision) -> Session:
    """The session after a statement: ``USE`` changes it, and so do temporary tables.

    :raises UnknownClusterError: ``USE CLUSTER`` names a cluster that is not configured.
    """
    analysis: Analysis = analyse(text)
    if isinstance(analysis, UseCluster):
        if analysis.cluster is not None and analysis.cluster not in clusters:
            raise _unknown(analysis.cluster, clusters)
        return replace(session, cluster=analysis.cluster)
    if isinstance(analysis, UseDatabase):
        return replace(session, database=analysis.database)
    if isinstance(analysis, Statement) and decision.cluster is not None:
        return _with_temporary(analysis, session, decision.cluster)
    return session


def _with_temporary(statement: Statement, session: Session, cluster: str) -> Session:
    kept = dict(session.temporary)
    for output in statement.outputs:
        if output.temporary and statement.verb != "CREATE VIEW":
            kept[output.table.name] = cluster
        elif statement.verb == "DROP TABLE" and output.table.database is None:
            kept.pop(output.table.name, None)
    return replace(session, temporary=kept)


def failure(decision: Decision, clusters: Clusters) -> RoutingError:
    """The error that a decision without a cluster stands for."""
    if decision.rule is Rule.UNKNOWN_CLUSTER:
        return _unknown(decision.wanted or "", clusters)
    if decision.unanalysable is not None:
        found = decision.unanalysable
        return UnanalysableError(
            f"The tables of the statement are not known for certain: {found}.",
            remedy="Write it in a simpler form, or let such statements run in the default cluster.",
            line=found.line,
            column=found.column,
            decision=decision,
        )
    return RoutingError(decision.reason, remedy=decision.remedy, decision=decision)


def _unknown(name: str, clusters: Clusters) -> UnknownClusterError:
    return UnknownClusterError(
        f"No cluster {name!r} is configured.",
        remedy=f"Use one of {', '.join(clusters.names)}, or configure it.",
        cluster=name,
    )


def _unanalysed(analysis: Analysis, clusters: Clusters, session: Session, policy: Policy) -> Decision:
    assert isinstance(analysis, Unanalysable)
    if policy is Policy.STRICT:
        reason = f"It cannot be analysed: {analysis}."
        return Decision(rule=Rule.UNANALYSABLE, reason=reason, unanalysable=analysis)
    return Decision(
        cluster=session.cluster or clusters.default,
        rule=Rule.UNANALYSABLE,
        reason=f"It cannot be analysed ({analysis}), and the policy lets it run.",
        unanalysable=analysis,
    )


def _decided(
    inputs: tuple[InputUse, ...], outputs: tuple[OutputUse, ...], clusters: Clusters, session: Session
) -> Decision:
    decision = Decision(rule=Rule.NONE, reason="", inputs=inputs, outputs=outputs)
    unplaced = [f"{one.table}: {one.unplaced}" for one in inputs if one.unplaced]
    unplaced += [f"{one.table}: {one.unplaced}" for one in outputs if one.unplaced]
    if unplaced:
        return replace(
            decision,
            reason=f"{'; '.join(unplaced)}.",
            remedy="Correct the name, or the session's database, or assign the table to a cluster.",
        )
    primaries = tuple(dict.fromkeys(name for one in outputs for name in one.primaries))
    if len(primaries) > 1:
        where = "; ".join(str(one) for one in outputs if one.primaries)
        return replace(
            decision,
            rule=Rule.OUTPUT,
            reason=f"Its outputs have different primary clusters: {where}.",
            remedy="Write tables of one primary cluster in one statement.",
        )
    rule, candidates = _candidates(inputs, primaries, clusters, session)
    attempts = tuple(_attempt(one, inputs, outputs, clusters) for one in candidates)
    won = next((one for one in attempts if not one.problems), None)
    tried = attempts[: attempts.index(won) + 1] if won else attempts
    return replace(
        decision,
        cluster=won.cluster if won else None,
        rule=rule,
        reason=_reason(rule, won, inputs, outputs) if won else _refusal(rule, attempts),
        attempts=tried,
        wanted=session.cluster,
    )


def _candidates(
    inputs: tuple[InputUse, ...], primaries: tuple[str, ...], clusters: Clusters, session: Session
) -> tuple[Rule, tuple[str, ...]]:
    if session.cluster is not None:
        return Rule.SESSION, (session.cluster,)
    if primaries:
        return Rule.OUTPUT, primaries
    found = tuple(dict.fromkeys(one.primary for one in inputs if one.primary))
    return (Rule.INPUT, found) if found else (Rule.NO_TABLES, (clusters.default,))


def _attempt(
    cluster: str, inputs: Sequence[InputUse], outputs: Sequence[OutputUse], clusters: Clusters
) -> Attempt:
    problems = []
    if cluster not in clusters:
        of = [str(one.table) for one in inputs if one.primary == cluster]
        of += [str(one.table) for one in outputs if cluster in one.primaries]
        whose = f", the cluster of {', '.join(of)}," if of else ""
        problems.append(f"{cluster}{whose} is not configured")
    for output in outputs:
        others = [name for name in output.primaries if name != cluster]
        if others:
            problems.append(f"{output.table} can only be written in its primary cluster {others[0]}")
    problems += [problem for one in inputs for problem in one.problems(cluster)]
    return Attempt(cluster, tuple(problems))


def _reason(rule: Rule, won: Attempt, inputs: Sequence[InputUse], outputs: Sequence[OutputUse]) -> str:
    match rule:
        case Rule.SESSION:
            return f"The session uses cluster {won.cluster}, which has all that the statement needs."
        case Rule.OUTPUT:
            owner = next(one for one in outputs if one.primaries)
            return f"{won.cluster} is the primary cluster of the output {owner.table}."
        case Rule.INPUT:
            owner_in = next(one for one in inputs if one.primary == won.cluster)
            return f"{won.cluster} is the primary cluster of {owner_in.table}, and has all other inputs."
    return f"It uses no table of a cluster: {won.cluster} is the default."


def _refusal(rule: Rule, attempts: Sequence[Attempt]) -> str:
    because = {
        Rule.SESSION: "the cluster of the session",
        Rule.OUTPUT: "the primary cluster of its output",
        Rule.INPUT: "the primary cluster of an input",
    }.get(rule, "the default cluster")
    tried = "; ".join(f"not in {one.cluster}, {because}: {', '.join(one.problems)}" for one in attempts)
    return f"No cluster can run the statement: {tried}."
