"""Links Airflow tasks on clusters to their XComs, and builds the values of these XComs."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context

    from airflow_hive_federation.clusters.registry import Cluster
    from airflow_hive_federation.clusters.routing.decision import Decision

#: Keys of the XComs.
ROUTE, COPY = "route", "copy"


class RouteLink(BaseOperatorLink):
    """A link to the route of a task's statements: the clusters, the deciding rules, and the reasons."""

    name = "Route"

    def get_link(self, operator: BaseOperator, *, ti_key: object) -> str:
        """Return the URL of the task's XCom page."""
        return xcom_page(ti_key)


class CopyLink(BaseOperatorLink):
    """A link to the names and directories of the copies that a task made."""

    name = "Copy"

    def get_link(self, operator: BaseOperator, *, ti_key: object) -> str:
        """Return the URL of the task's XCom page."""
        return xcom_page(ti_key)


def xcom_page(ti_key: Any) -> str:
    """Return the URL of the XCom page of a task instance.

    :param ti_key: the task instance, or its key.
    """
    from airflow_hive_federation.hooks.compat import configured

    parts = ["dags", ti_key.dag_id, "runs", ti_key.run_id, "tasks", ti_key.task_id]
    if ti_key.map_index is not None and ti_key.map_index >= 0:
        parts += ["mapped", str(ti_key.map_index)]
    path = "/".join(quote(part, safe="") for part in (*parts, "xcom"))
    return f"{configured('api', 'base_url', '/').rstrip('/')}/{path}"


def push(context: Context, key: str, value: object) -> None:
    """Push a value to the XComs of the running task; do nothing if no task runs."""
    task_instance = context.get("ti")
    if task_instance is not None:
        task_instance.xcom_push(key=key, value=value)


def route_note(decision: Decision, refused: str = "") -> dict[str, object]:
    """Return the XCom value for the route of one statement, without the statement's text and rows.

    :param refused: the reason why the statement was not run.
    """
    from airflow_hive_federation.clusters.routing.explain import in_words, without_text

    decision = without_text(decision)
    if decision.unanalysable is not None:
        refused = refused and decision.reason
    note: dict[str, object] = {"cluster": None if refused else decision.cluster, "rule": str(decision.rule)}
    if refused:
        note["refused"] = refused
    return {**note, "route": in_words(decision).splitlines()}


def copy_note(
    table: str, cluster: Cluster, copied: list[str], current: list[str] | None
) -> dict[str, object]:
    """Return the XCom value for the copies of one table.

    :param current: the objects that were up to date; ``None`` if the task did not compare them.
    """
    from airflow_hive_federation.clusters.altering import split_name
    from airflow_hive_federation.storage.filesystem import join

    database, name = split_name(table)
    note: dict[str, object] = {
        "table": f"{database}.{name}",
        "cluster": cluster.name,
        "directory": join(cluster.root, f"{database}.db", f"{name}.copies"),
        "copied": copied,
    }
    return note if current is None else {**note, "current": len(current)}


def run_of(context: Context) -> tuple[str, str]:
    """Return an id of the run that all tries of a task share, and the name of the task."""
    task_instance = context.get("ti")
    if task_instance is None:
        return uuid.uuid4().hex, "a program"
    parts = (task_instance.dag_id, task_instance.run_id, task_instance.task_id, task_instance.map_index)
    return "/".join(map(str, parts)), f"{task_instance.dag_id}.{task_instance.task_id}"
