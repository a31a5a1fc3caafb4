"""Links from tasks on clusters to what they note in XCom, and these notes."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context

    from airflow_hive_federation.clusters.registry import Cluster
    from airflow_hive_federation.clusters.routing.decision import Decision

#: Keys of XComs.
ROUTE, COPY = "route", "copy"


class RouteLink(BaseOperatorLink):
    """Shows the route of a task's statements: the clusters, the rules that decided, and why."""

    name = "Route"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """The page of the task's XComs."""
        return xcom_page(ti_key)


class CopyLink(BaseOperatorLink):
    """Names the copies that a task made, and where they are."""

    name = "Copy"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """The page of the task's XComs."""
        return xcom_page(ti_key)


def xcom_page(ti_key: Any) -> str:
    """URL of the page of a task instance's XComs.

    :param ti_key: task instance, or its key.
    """
    from airflow_hive_federation.hooks.compat import configured

    parts = ["dags", ti_key.dag_id, "runs", ti_key.run_id, "tasks", ti_key.task_id]
    if ti_key.map_index is not None and ti_key.map_index >= 0:
        parts += ["mapped", str(ti_key.map_index)]
    path = "/".join(quote(one, safe="") for one in (*parts, "xcom"))
    return f"{configured('api', 'base_url', '/').rstrip('/')}/{path}"


def push(context: Context, key: str, value: Any) -> None:
    """Note a value for the task's page, unless no task runs."""
    task_instance = context.get("ti")
    if task_instance is not None:
        task_instance.xcom_push(key=key, value=value)


def route_note(decision: Decision, refused: str = "") -> dict[str, Any]:
    """The route of one statement for the page: no text of the statement, and no rows.

    :param refused: the reason why it was not run.
    """
    from airflow_hive_federation.clusters.routing.explain import in_words

    note: dict[str, Any] = {"cluster": None if refused else decision.cluster, "rule": str(decision.rule)}
    if refused:
        note["refused"] = refused
    return {**note, "route": in_words(decision).splitlines()}


def copy_note(table: str, cluster: Cluster, copied: list[str], current: list[str] | None) -> dict[str, Any]:
    """The copy for the page.

    :param current: objects that were up to date; ``None`` if they were not looked at.
    """
    from airflow_hive_federation.clusters.copies.objects import split_name
    from airflow_hive_federation.storage.filesystem import join

    database, name = split_name(table)
    note: dict[str, Any] = {
        "table": f"{database}.{name}",
        "cluster": cluster.name,
        "directory": join(cluster.root, f"{database}.db", name),
        "copied": copied,
    }
    return note if current is None else {**note, "current": len(current)}


def run_of(context: Context) -> tuple[str, str]:
    """The run of a task that all of its tries share, and the name of the task."""
    task_instance = context.get("ti")
    if task_instance is None:
        return uuid.uuid4().hex, "a program"
    parts = (task_instance.dag_id, task_instance.run_id, task_instance.task_id, task_instance.map_index)
    return "/".join(map(str, parts)), f"{task_instance.dag_id}.{task_instance.task_id}"
