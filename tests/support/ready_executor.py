"""An executor of whole Airflows in tests, whose tasks need not import the package's modules themselves.

Airflow forks the process of a task from a worker of its executor, with all that the executor has imported.
Otherwise, each task would spend a second of processor time on the same imports.
"""

from __future__ import annotations

from importlib import import_module

from airflow.executors.local_executor import LocalExecutor

#: Its path, for Airflow's setting ``[core] executor``.
EXECUTOR = f"{__name__}.ReadyExecutor"
#: Modules that bring most of those of a replication's tasks along.
_MODULES = (
    "airflow_hive_federation.hooks.pipeline_submit",
    "airflow_hive_federation.metastore",
    "airflow_hive_federation.operators.replication",
    "airflow_hive_federation.replication.cycle",
    "airflow_hive_federation.replication.verify.verify",
)


class ReadyExecutor(LocalExecutor):
    """Airflow's executor of standalone mode, with the package's modules imported before it forks."""

    def start(self) -> None:
        """Import the modules, and start the workers."""
        for name in _MODULES:
            import_module(name)
        super().start()
