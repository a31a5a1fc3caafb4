"""Links tasks to the page Hive federation, their Spark applications and their dumps.

Airflow asks for the URLs at the end of a task, and hides a link whose URL is empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import BaseOperatorLink

from airflow_hive_federation.hooks.compat import configured
from airflow_hive_federation.hooks.published import names_in

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator

#: Name of the links in Airflow's UI.
_NAME = "Hive federation"


class PolicyLink(BaseOperatorLink):
    """A link from a task of a policy to the policy on the page; to the list if the task names no policy."""

    name = _NAME

    def get_link(self, operator: BaseOperator, *, ti_key: object) -> str:
        """Return the URL of the policy on the page."""
        from airflow_hive_federation.published.directory import policy_key

        policy = getattr(operator, "policy", None)
        return _page(f"policy={policy_key(names_in(policy))}" if policy else "tab=replication")


class ReplicationLink(BaseOperatorLink):
    """A link from a task of a consistency group to the policies on the page."""

    name = _NAME

    def get_link(self, operator: BaseOperator, *, ti_key: object) -> str:
        """Return the URL of the list of policies."""
        return _page("tab=replication")


class RemotesLink(BaseOperatorLink):
    """A link from a task of a remote to the remotes on the page."""

    name = _NAME

    def get_link(self, operator: BaseOperator, *, ti_key: object) -> str:
        """Return the URL of the list of remotes."""
        return _page("tab=remotes")


class WorkLink(BaseOperatorLink):
    """A link from a task of ingest or compaction to their state on the page."""

    name = _NAME

    def get_link(self, operator: BaseOperator, *, ti_key: object) -> str:
        """Return the URL of ingest and compaction on the page."""
        return _page("tab=work")


class ClustersLink(BaseOperatorLink):
    """A link from a task of clusters to the clusters on the page."""

    name = _NAME

    def get_link(self, operator: BaseOperator, *, ti_key: object) -> str:
        """Return the URL of the list of tables by cluster."""
        return _page("tab=clusters")


class SparkLink(BaseOperatorLink):
    """A link from a task to its last Spark application, if that has a web page that is known."""

    name = "Spark application"

    def get_link(self, operator: BaseOperator, *, ti_key: object) -> str:
        """Return the URL of the application's page; empty without one."""
        spark = getattr(operator, "_spark", None)
        return str(getattr(spark, "application_url", "") or getattr(operator, "application_url", ""))


class DumpLink(BaseOperatorLink):
    """A link from a task of a policy to its dump, if the store has a web page that is known."""

    name = "Dump"

    def get_link(self, operator: BaseOperator, *, ti_key: object) -> str:
        """Return the URL of the dump's directory in the store; empty without one."""
        return str(getattr(operator, "dump_url", ""))


def _page(query: str) -> str:
    return f"{configured('api', 'base_url', '/').rstrip('/')}/plugin/hive-federation?{query}"
