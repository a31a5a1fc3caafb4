"""Finds the directory in which tasks publish state, and publishes without failing a task."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from airflow_hive_federation.errors import (
    HiveFederationError,
    VerificationError,
    VerificationIncompleteError,
    divided,
)
from airflow_hive_federation.hooks.compat import (
    AirflowException,
    AirflowNotFoundException,
    AirflowSkipException,
    configured,
    redact,
)
from airflow_hive_federation.hooks.error_translation import error_text, origin_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_hive_federation.metastore import MetastorePool
    from airflow_hive_federation.published.directory import StateDirectory
    from airflow_hive_federation.published.documents import PolicyName, Publisher
    from airflow_hive_federation.published.policies import PolicyPublisher
    from airflow_hive_federation.replication.policy import ReplicationPolicy
    from airflow_hive_federation.replication.status import Lags
    from airflow_hive_federation.storage.options import StorageOptions

#: Section of Airflow's configuration, and its options.
SECTION, STATE_URI, STATE_CONN_ID = "hive_federation", "state_uri", "state_conn_id"
#: Name of the directory in Airflow's home that holds the state by default.
_DEFAULT = "hive_federation_state"
#: The warnings of this process.
_warned: set[str] = set()


class Log(Protocol):
    """The logger of a task, a trigger or a command."""

    def warning(self, message: str, /, *arguments: object) -> object:
        """Log a warning."""


def state_directory() -> StateDirectory:
    """Return the directory of the state: ``[hive_federation] state_uri`` of Airflow's configuration.

    :raises ConfigurationError: ``state_conn_id`` has options that cannot be read.
    """
    from airflow_hive_federation.published.directory import StateDirectory

    home = Path(os.environ.get("AIRFLOW_HOME") or "~/airflow").expanduser()
    uri = configured(SECTION, STATE_URI, "") or str(home / _DEFAULT)
    return StateDirectory(uri, _options(configured(SECTION, STATE_CONN_ID, "")))


@contextmanager
def publication(log: Log) -> Iterator[None]:
    """Let a task go on if its state cannot be published: the first such error of a process is a warning.

    :param log: the logger of the task.
    """
    try:
        yield
    except (HiveFederationError, AirflowNotFoundException) as error:
        text = error_text(error) if isinstance(error, HiveFederationError) else str(error)
        if text not in _warned:
            _warned.add(text)
            log.warning("The state for Airflow's page Hive federation was not published. %s", text)


class StatePublished(ABC):
    """Publishes the error with which a block of a task ends, and lets it pass.

    :param log: the logger of the task.
    """

    def __init__(self, log: Log) -> None:
        self._log = log

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A deferral is no Exception, and neither is the end of a process.
        if isinstance(error, Exception) and not isinstance(error, AirflowSkipException):
            with publication(self._log):
                self._failed(error)

    @abstractmethod
    def _failed(self, error: Exception) -> None:
        """Publish an error."""


def publisher_of(context: Context) -> Publisher:
    """Return the publisher of a task; without a task instance, the name of a program."""
    from airflow_hive_federation.published.documents import Publisher

    ti = context.get("ti")
    if ti is None:
        return Publisher(command="a program")
    names = {name: str(getattr(ti, name, "")) for name in ("dag_id", "run_id", "task_id")}
    index = getattr(ti, "map_index", None)
    return Publisher(**names, map_index=-1 if index is None else int(index))


def _options(conn_id: str) -> StorageOptions:
    if not conn_id:
        return {}
    from airflow_hive_federation.hooks.metastore import HiveMetastoreHook

    return HiveMetastoreHook(conn_id).storage_options


def policy_publisher(policy: ReplicationPolicy, by: Publisher) -> PolicyPublisher:
    """Return the publisher of what a task learns about a policy."""
    from airflow_hive_federation.published.folding import name_of
    from airflow_hive_federation.published.policies import PolicyPublisher

    return PolicyPublisher(state_directory(), name_of(policy), by, options=policy.storage_options)


def publish_lags(policy: ReplicationPolicy, lags: Lags, by: Mapping[str, object], log: Log) -> None:
    """Publish lags that a probe has counted.

    :param by: the fields of the publisher.
    """
    from airflow_hive_federation.published.documents import read_publisher

    with publication(log):
        policy_publisher(policy, read_publisher(dict(by))).lags(lags)


def publish_wait(policy: Mapping[str, object], text: str, by: Mapping[str, object], log: Log) -> None:
    """Publish the wait of a policy's task.

    :param policy: the fields of the policy, of which some may be impossible.
    :param text: a description of the wait; empty at its end.
    :param by: the fields of the publisher.
    """
    from airflow_hive_federation.published.documents import read_publisher
    from airflow_hive_federation.published.policies import PolicyPublisher

    with publication(log):
        PolicyPublisher(state_directory(), names_in(policy), read_publisher(dict(by))).wait(text)


def publish_cycle(
    source: MetastorePool,
    target: MetastorePool,
    policy: ReplicationPolicy,
    *,
    skipped: Mapping[str, str] | None,
    by: Publisher,
    log: Log,
) -> None:
    """Publish the cycle that has ended, and the lags after it.

    :param skipped: the tables that the cycle left out, with the reasons; ``None`` if nobody looked.
    """
    from airflow_hive_federation.replication.replica.cycle_history import read_cycles
    from airflow_hive_federation.replication.replica.markers import CHECKPOINT
    from airflow_hive_federation.replication.status import read_lags

    with publication(log):
        with source.client() as of_source, target.client() as of_target:
            parameters = of_target.get_database(policy.target_database).parameters or {}
            lags = read_lags(of_source, of_target, policy)
        policy_publisher(policy, by).cycle(
            read_cycles(parameters),
            lags,
            skipped=None if skipped is None else dict(skipped),
            dump=parameters.get(CHECKPOINT, ""),
        )


def publish_failure(
    fields: Mapping[str, object], error: BaseException, by: Publisher, *, seconds: float, log: Log
) -> None:
    """Publish the failure of a task of a policy.

    :param fields: the fields of the policy, of which some may be impossible.
    :param error: the error with which the task ends.
    :param seconds: the time that the task has worked.
    """
    from airflow_hive_federation.published.policies import PolicyPublisher

    text, remedy = described(error)
    with publication(log):
        PolicyPublisher(state_directory(), names_in(fields), by).failure(text, remedy, seconds=seconds)


class FailuresPublished(StatePublished):
    """Publishes the error with which a block ends, for each policy that the block works for.

    :param policies: returns the fields of the policies.
    """

    def __init__(
        self, policies: Callable[[], Sequence[Mapping[str, object]]], context: Context, log: Log
    ) -> None:
        super().__init__(log)
        self._policies = policies
        self._context = context
        self._began_s = time.time()

    def _failed(self, error: Exception) -> None:
        # The verification has published its differences.
        if isinstance(origin_of(error), VerificationError | VerificationIncompleteError):
            return
        seconds, by = time.time() - self._began_s, publisher_of(self._context)
        for policy in self._policies():
            publish_failure(policy, error, by, seconds=seconds, log=self._log)


def names_in(fields: Mapping[str, object]) -> PolicyName:
    """Return the names in the rendered fields of a policy, which may be impossible ones."""
    from airflow_hive_federation.published.documents import PolicyName

    name, source, target = (
        "" if (text := str(fields.get(field) or "").strip()) == "None" else text
        for field in ("name", "source_database", "target_database")
    )
    return PolicyName(
        name=name, source_database=source.lower(), target_database=target.lower() or source.lower()
    )


def described(error: BaseException) -> tuple[str, str]:
    """Return the class and the message of the error with which a task ends, and its remedy."""
    cause = origin_of(error)
    if cause is not None:
        text, remedy = f"{type(cause).__name__}: {cause.message}", cause.remedy
    else:
        # A trigger sends the text of an error alone.
        message, remedy = divided(str(error))
        text = message if isinstance(error, AirflowException) else f"{type(error).__name__}: {message}"
    # As in the log: a foreign error may quote a secret.
    return str(redact(text)), str(redact(remedy))
