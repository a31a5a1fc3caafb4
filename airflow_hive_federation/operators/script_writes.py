"""Keeps the retries of a task from running a script again of which statements have written."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_hive_federation.errors import HiveFederationError, SparkJobError, StorageError
from airflow_hive_federation.hooks.error_translation import airflow_error, error_text

if TYPE_CHECKING:
    from airflow_hive_federation.clusters.routing.decision import Decision
    from airflow_hive_federation.storage.options import StorageOptions

logger = logging.getLogger(__name__)


class ScriptWrites:
    """The writes of one task's script.

    Before the first statement that may write, the task makes a file, which it removes when the script has
    ended or has failed for good. The next try of a task that was killed in between finds the file.

    :param record: URI of the file; ``None`` keeps none.
    """

    def __init__(self, record: str | None, options: StorageOptions | None = None) -> None:
        self._record = record
        self._options = options
        self._tables: list[str] = []
        self._has_written = False

    @contextmanager
    def of_one_try(self) -> Iterator[None]:
        """Run the statements of one try.

        :raises SparkJobError: an earlier try was killed after a statement that may have written. The record
            is removed, so that the next try runs the script.
        :raises AirflowFailException: in place of each error of the package after such a statement.
        """
        self._refuse_after_a_kill()
        try:
            yield
        except HiveFederationError as error:
            self._remove()
            if not (self._has_written and error.retryable):
                raise
            logger.debug("The error comes from here:", exc_info=error)
            text = (
                f"{error_text(error)} Airflow does not retry the task: {self._what()}, and a retry would run "
                "the whole script again. Clear the task to do so."
            )
            raise airflow_error(text, retryable=False) from None
        self._remove()

    def begin(self, decision: Decision) -> None:
        """Note that a statement is about to run, if it may write.

        :raises StorageError: the record cannot be written.
        """
        if not (decision.outputs or decision.unanalysable):
            return
        from airflow_hive_federation.storage.publishing import write_atomically

        self._tables += [str(use.table) for use in decision.outputs]
        if self._record is not None:
            write_atomically(self._record, [self._what().encode()], self._options, private=True)
        self._has_written = True

    def _what(self) -> str:
        tables = ", ".join(dict.fromkeys(self._tables))
        return f"its statements may have written to {tables}" if tables else "its statements may have written"

    def _refuse_after_a_kill(self) -> None:
        text = self._read()
        if text is None:
            return
        self._remove()
        raise SparkJobError(
            f"An earlier try of this task was killed; {text}, and the last of them may still run. Running "
            "the script again could write the same rows twice.",
            remedy="Look at these tables, and at Spark's applications. Then clear the task to run the whole "
            "script again, or mark it as success.",
        )

    def _read(self) -> str | None:
        if self._record is None:
            return None
        from airflow_hive_federation.errors import FileVanishedError
        from airflow_hive_federation.storage.filesystem import reading

        try:
            with reading(self._record, self._options) as file:
                return str(file.read().decode())
        except FileVanishedError:
            return None

    def _remove(self) -> None:
        if self._record is None:
            return
        from airflow_hive_federation.storage.publishing import remove_file

        try:
            remove_file(self._record, self._options)
        except StorageError as error:
            logger.warning("The record of the script's writes stays, and the next try will fail: %s", error)
