"""Chooses the cluster of a statement, by the rules of Hive's "Hive across Multiple Data Centers". Pure.

A statement runs in one cluster. It writes its outputs in their primary cluster; the same cluster must hold
fresh copies of all the data that it reads. For a statement without an output, the primaries of the inputs are
tried in turn, in the order in which the statement names them. A session with a chosen cluster uses that
cluster or gets an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import NoReturn

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
from airflow_hive_federation.errors import (
    ConfigurationError,
    RoutingError,
    UnanalysableError,
    UnknownClusterError,
)

#: A statement begins so long after its decision, at the latest.
_UNTIL_BEGUN = timedelta(minutes=5)


class Policy(StrEnum):
    """The treatment of statements whose tables are not known for certain."""

    #: Such statements are refused.
    STRICT = "strict"
    #: Such statements run in the session's cluster, else in the default cluster.
    DEFAULT = "default"

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        raise ConfigurationError(
            f"{value!r} is no policy of routing.", remedy=f"Choose one of: {', '.join(cls)}."
        )


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

    :param today: the possible days of ``current_date``; by default :func:`possible_days` of now.
    :raises RoutingError: no cluster can run the statement; the message names tables and partitions.
    :raises UnanalysableError: the tables are not known for certain, and the policy is strict.
    :raises UnknownClusterError: the session's cluster, or that of ``USE CLUSTER``, is not configured.
    """
    decision = decide(text, catalog, clusters, session, policy=policy, today=today)
    if decision.cluster is not None:
        return decision
    raise failure(decision, clusters)


def possible_days(now: datetime | None = None) -> tuple[date, ...]:
    """Return the days that ``current_date`` may have in a statement that begins within five minutes.

    :param now: the time, in the time zone of the engines; by default the local time.
    """
    now = now or datetime.now().astimezone()
    return tuple(dict.fromkeys((now.date(), (now + _UNTIL_BEGUN).date())))


def decide(
    text: str,
    catalog: CatalogFacts,
    clusters: Clusters,
    session: Session | None = None,
    *,
    policy: Policy = Policy.STRICT,
    today: Sequence[date] = (),
) -> Decision:
    """Decide like :func:`route`, but return a decision without a cluster where that function raises."""
    session = session or Session()
    analysis = analyse(text)
    session_cluster = analysis.cluster if isinstance(analysis, UseCluster) else session.cluster
    if session_cluster is not None and session_cluster not in clusters:
        reason = f"No cluster {session_cluster!r} is configured."
        return Decision(rule=Rule.UNKNOWN_CLUSTER, reason=reason, wanted=session_cluster)
    if isinstance(analysis, UseCluster | UseDatabase):
        return Decision(
            cluster=session_cluster or clusters.default,
            rule=Rule.SESSION,
            reason="It changes the session only.",
        )
    if isinstance(analysis, Statement):
        try:
            table_reads = reads(analysis, catalog, session)
            inputs = input_uses(table_reads, catalog, clusters, tuple(today) or possible_days())
            outputs = output_uses(analysis.outputs, catalog, clusters, session)
        except UnreadableError as error:
            analysis = error.at(text)
        else:
            return _decided(inputs, outputs, clusters, session)
    return _unanalysed(analysis, clusters, session, policy)


def next_session(text: str, session: Session, clusters: Clusters, decision: Decision) -> Session:
    """Return the session after a statement: ``USE`` and temporary tables change the session.

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
    temporary = dict(session.temporary)
    for output in statement.outputs:
        if output.temporary and statement.verb != "CREATE VIEW":
            temporary[output.table.name] = cluster
        elif statement.verb == "DROP TABLE" and output.table.database is None:
            temporary.pop(output.table.name, None)
    return replace(session, temporary=temporary)


def failure(decision: Decision, clusters: Clusters) -> RoutingError:
    """Return the error for a decision without a cluster."""
    if decision.rule is Rule.UNKNOWN_CLUSTER:
        return _unknown(decision.wanted or "", clusters)
    if decision.unanalysable is not None:
        unanalysable = decision.unanalysable
        return UnanalysableError(
            f"The tables of the statement are not known for certain: {unanalysable}.",
            remedy="Write it in a simpler form, or let such statements run in the default cluster (the "
            "policy 'default').",
            line=unanalysable.line,
            column=unanalysable.column,
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
    unplaced = [f"{use.table}: {use.unplaced}" for use in inputs if use.unplaced]
    unplaced += [f"{output.table}: {output.unplaced}" for output in outputs if output.unplaced]
    if unplaced:
        return replace(
            decision,
            reason=f"{'; '.join(unplaced)}.",
            remedy="Correct the name, or the session's database, or assign the table to a cluster.",
        )
    primaries = tuple(dict.fromkeys(name for output in outputs for name in output.primaries))
    if len(primaries) > 1:
        clusters_of_outputs = "; ".join(str(output) for output in outputs if output.primaries)
        return replace(
            decision,
            rule=Rule.OUTPUT,
            reason=f"Its outputs have different primary clusters: {clusters_of_outputs}.",
            remedy="Write tables of one primary cluster in one statement.",
        )
    rule, candidates = _candidates(inputs, primaries, clusters, session)
    attempts = tuple(_attempt(cluster, inputs, outputs, clusters) for cluster in candidates)
    won = next((attempt for attempt in attempts if not attempt.problems), None)
    remedy = decision.remedy
    if rule is Rule.SESSION:
        remedy = f"USE CLUSTER without a name lets the router choose a cluster. {remedy}"
    elif missing := [cluster for cluster in candidates if cluster not in clusters]:
        remedy = f"Add {' and '.join(missing)} to the registry again. {remedy}"
    tried = attempts[: attempts.index(won) + 1] if won else attempts
    return replace(
        decision,
        cluster=won.cluster if won else None,
        rule=rule,
        reason=_reason(rule, won, inputs, outputs) if won else _refusal(rule, attempts),
        attempts=tried,
        remedy=remedy,
        wanted=session.cluster,
    )


def _candidates(
    inputs: tuple[InputUse, ...], primaries: tuple[str, ...], clusters: Clusters, session: Session
) -> tuple[Rule, tuple[str, ...]]:
    if session.cluster is not None:
        return Rule.SESSION, (session.cluster,)
    if primaries:
        return Rule.OUTPUT, primaries
    primaries_of_inputs = tuple(dict.fromkeys(use.primary for use in inputs if use.primary))
    return (Rule.INPUT, primaries_of_inputs) if primaries_of_inputs else (Rule.NO_TABLES, (clusters.default,))


def _attempt(
    cluster: str, inputs: Sequence[InputUse], outputs: Sequence[OutputUse], clusters: Clusters
) -> Attempt:
    problems = []
    if cluster not in clusters:
        of = [str(use.table) for use in inputs if use.primary == cluster]
        of += [str(written.table) for written in outputs if cluster in written.primaries]
        whose = f", the cluster of {', '.join(of)}," if of else ""
        problems.append(f"{cluster}{whose} is not configured")
    for output in outputs:
        other_primaries = [name for name in output.primaries if name != cluster]
        if other_primaries:
            problems.append(f"{output.table} can only be written in its primary cluster {other_primaries[0]}")
    problems += [problem for use in inputs for problem in use.problems(cluster)]
    return Attempt(cluster, tuple(problems))


def _reason(rule: Rule, won: Attempt, inputs: Sequence[InputUse], outputs: Sequence[OutputUse]) -> str:
    match rule:
        case Rule.SESSION:
            return f"The session uses cluster {won.cluster}, which has all that the statement needs."
        case Rule.OUTPUT:
            owner = next(use for use in outputs if use.primaries)
            return f"{won.cluster} is the primary cluster of the output {owner.table}."
        case Rule.INPUT:
            owner_in = next(use for use in inputs if use.primary == won.cluster)
            return f"{won.cluster} is the primary cluster of {owner_in.table}, and has all other inputs."
    return f"It uses no table of a cluster: {won.cluster} is the default."


def _refusal(rule: Rule, attempts: Sequence[Attempt]) -> str:
    because = {
        Rule.SESSION: "the cluster of the session",
        Rule.OUTPUT: "the primary cluster of its output",
        Rule.INPUT: "the primary cluster of an input",
    }.get(rule, "the default cluster")
    tried = "; ".join(
        f"not in {attempt.cluster}, {because}: {', '.join(attempt.problems)}" for attempt in attempts
    )
    if rule is Rule.SESSION:
        # Other clusters were not tried.
        return f"The cluster of the session cannot run the statement: {tried}."
    return f"No cluster can run the statement: {tried}."
