"""Defines the errors of streaming ingest, with the names of Hive's ``org.apache.hive.streaming``.

::

    StreamingException
    ├── ConnectionError               no metastore behind the URIs                       (retryable)
    │   └── InvalidConnection             the builder got wrong arguments: correct them
    ├── InvalidTable                  the table is missing, or cannot be streamed into
    │   └── InvalidColumn                 the records' columns are not the table's
    ├── InvalidTransactionState       a call that is illegal in the connection's present state
    ├── SerializationError            a record that cannot be parsed
    │   └── DeadLetterLimitExceeded       more bad records than the limit
    ├── SourceError                   the source database fails                          (retryable)
    │   └── InvalidSource                 the rows are not in the order of their key
    ├── StreamingIOFailure            files or a partition could not be written          (retryable)
    │   └── PartitionCreationFailed
    └── TransactionError              a transaction that cannot be begun, committed or aborted  (retryable)
        ├── HeartBeatFailure              the metastore has aborted the transaction      (retryable)
        └── CommitOutcomeUnknown          the commit may have happened: read the position back

After a retryable error, connect again and send the records of the transaction again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow_hive_federation.errors import (
    AcidFormatError,
    HiveFederationError,
    MetastoreError,
    MetastoreTimeoutError,
    MetastoreUnreachableError,
    OutcomeUnknownError,
    StorageError,
)


class StreamingException(HiveFederationError):  # noqa: N818
    """Base of the errors of streaming ingest."""


class ConnectionError(StreamingException):  # noqa: A001
    """No metastore can be reached."""

    retryable = True


class InvalidConnection(ConnectionError):  # noqa: N818
    """The builder's settings do not describe a connection."""

    retryable = False


class InvalidTable(StreamingException):
    """The table does not exist, or records cannot be streamed into it."""


class InvalidColumn(InvalidTable):
    """The columns of the records are not those of the table; ``missing`` and ``unknown`` name them."""


class InvalidTransactionState(StreamingException):
    """A call that is not legal in the connection's present state; ``state`` names it."""


class SerializationError(StreamingException):
    """A record that cannot be parsed; ``record_number`` and ``column`` locate the error.

    The transaction stays open. The bad record is not part of it; all others are.
    """


class DeadLetterLimitExceeded(SerializationError):  # noqa: N818
    """The bad records exceed the limit of dead letters; ``limit`` is that limit."""


class SourceError(StreamingException):
    """The source database refuses the query or has disconnected."""

    retryable = True


class InvalidSource(SourceError):  # noqa: N818
    """The rows of the query break the contract of their key."""

    retryable = False


class StreamingIOFailure(StreamingException):
    """Files could not be written; the connection can only be closed."""

    retryable = True


class PartitionCreationFailed(StreamingIOFailure):
    """A partition could not be created."""


class TransactionError(StreamingException):
    """A transaction could not be begun, committed or aborted; ``txn_id`` names it."""

    retryable = True


class HeartBeatFailure(TransactionError):  # noqa: N818
    """The metastore has aborted the transaction, or forgotten it; the connection can only be closed."""


class CommitOutcomeUnknown(TransactionError):  # noqa: N818
    """The connection broke inside a commit, and the metastore does not report the outcome."""

    retryable = False


@contextmanager
def metastore_errors(kind: type[StreamingException], subject: str, **facts: object) -> Iterator[None]:
    """Translate the errors that a metastore raises inside the block into streaming errors.

    :param kind: error for a request that the metastore refused; a missing answer is a ``ConnectionError``.
    :param subject: the action or the object; it begins the message.
    :param facts: become attributes of the error.
    """
    try:
        yield
    except (MetastoreUnreachableError, MetastoreTimeoutError) as error:
        raise ConnectionError(f"{subject}: {error.message}", remedy=error.remedy, **facts) from error
    except OutcomeUnknownError as error:
        raise ConnectionError(
            f"{subject}: {error.message}", remedy="Close the connection and make another.", **facts
        ) from error
    except MetastoreError as error:
        raise kind(f"{subject}: {error.message}", remedy=error.remedy, **facts) from error


@contextmanager
def io_errors(subject: str, **facts: object) -> Iterator[None]:
    """Translate the errors of a file system or of the file encoder inside the block."""
    try:
        yield
    except (StorageError, AcidFormatError) as error:
        raise StreamingIOFailure(f"{subject}: {error.message}", remedy=error.remedy, **facts) from error
