"""Provides the base of the operators that return a result."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_hive_federation.hooks.progress import failures_counted, task_observer

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from airflow.sdk import Context

    from airflow_hive_federation.progress.observers import Observer


class ResultOperator(BaseOperator):
    """Base of the operators: the result of a task, a frozen dataclass, becomes a dictionary in its XCom."""

    _is_watched = False

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_hive_federation.model.results import result_json

        with self._failures_seen(context):
            return result_json(self.perform(context))

    def resume_execution(
        self, next_method: str, next_kwargs: dict[str, object] | None, context: Context
    ) -> object:
        """Resume a task that has left its worker; an error of its trigger is a failure of the task, too."""
        with self._failures_seen(context):
            return super().resume_execution(next_method, next_kwargs, context)

    @property
    def subject(self) -> str:
        """Return the database whose metrics count a failure of the task; empty for those of all databases."""
        return ""

    def watched(self, context: Context) -> AbstractContextManager[object]:
        """Return a context that sees the error with which the task ends; by default nothing looks."""
        return nullcontext()

    @contextmanager
    def _failures_seen(self, context: Context) -> Iterator[None]:
        """Count and publish the error with which the block ends, once: a resumed task executes within one."""
        if self._is_watched:
            yield
            return
        self._is_watched = True
        try:
            with failures_counted(self.subject), self.watched(context):
                yield
        finally:
            self._is_watched = False

    @property
    def observer(self) -> Observer:
        """Return the observer that writes the events of progress into the task's log."""
        return task_observer(self.log)

    @abstractmethod
    def perform(self, context: Context) -> DataclassInstance:
        """Do the work of the task, and return its result."""
