"""Translates errors of metastores and files into those of streaming ingest.

The classes are those of :mod:`airflow_hive_federation.errors`. This module has them under further names, too,
most of which are those of Hive's streaming API (``org.apache.hive.streaming``):

=======================  ===========================
alias                    class
=======================  ===========================
StreamingException       StreamingError
ConnectionError          StreamingConnectionError
InvalidConnection        StreamingSettingsError
InvalidTable             StreamingTableError
InvalidColumn            StreamingColumnError
InvalidTransactionState  StreamingStateError
SerializationError       StreamingRecordError
DeadLetterLimitExceeded  DeadLetterLimitError
SourceError              StreamingSourceError
InvalidSource            StreamingKeyError
StreamingIOFailure       StreamingStorageError
PartitionCreationFailed  StreamingPartitionError
TransactionError         StreamingTransactionError
HeartBeatFailure         StreamingHeartbeatError
CommitOutcomeUnknown     StreamingCommitUnknownError
=======================  ===========================

After a retryable error, connect again and send the records of the transaction again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow_hive_federation.errors import (
    AcidFormatError,
    DeadLetterLimitError,
    MetastoreError,
    MetastoreTimeoutError,
    MetastoreUnreachableError,
    OutcomeUnknownError,
    StorageError,
    StreamingColumnError,
    StreamingCommitUnknownError,
    StreamingConnectionError,
    StreamingError,
    StreamingHeartbeatError,
    StreamingKeyError,
    StreamingPartitionError,
    StreamingRecordError,
    StreamingSettingsError,
    StreamingSourceError,
    StreamingStateError,
    StreamingStorageError,
    StreamingTableError,
    StreamingTransactionError,
)

StreamingException = StreamingError
ConnectionError = StreamingConnectionError  # noqa: A001
InvalidConnection = StreamingSettingsError
InvalidTable = StreamingTableError
InvalidColumn = StreamingColumnError
InvalidTransactionState = StreamingStateError
SerializationError = StreamingRecordError
DeadLetterLimitExceeded = DeadLetterLimitError
SourceError = StreamingSourceError
InvalidSource = StreamingKeyError
StreamingIOFailure = StreamingStorageError
PartitionCreationFailed = StreamingPartitionError
TransactionError = StreamingTransactionError
HeartBeatFailure = StreamingHeartbeatError
CommitOutcomeUnknown = StreamingCommitUnknownError


@contextmanager
def metastore_errors(kind: type[StreamingError], subject: str, **facts: object) -> Iterator[None]:
    """Translate the errors that a metastore raises inside the block into streaming errors.

    :param kind: error for a request that the metastore refused; a missing answer is a
        ``StreamingConnectionError``.
    :param subject: the action or the object; it begins the message.
    :param facts: become attributes of the error.
    """
    try:
        yield
    except (MetastoreUnreachableError, MetastoreTimeoutError) as error:
        raise StreamingConnectionError(f"{subject}: {error.message}", remedy=error.remedy, **facts) from error
    except OutcomeUnknownError as error:
        raise StreamingConnectionError(
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
        raise StreamingStorageError(f"{subject}: {error.message}", remedy=error.remedy, **facts) from error
