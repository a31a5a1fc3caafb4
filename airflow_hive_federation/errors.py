"""Defines every error that the package raises on purpose.

::

    HiveFederationError
    ├── ConfigurationError
    │   └── SparkEnvironmentError · HiddenLocationError · ClusterRegistryError
    ├── MetastoreError
    │   ├── MetastoreUnreachableError ── KdcUnreachableError
    │   ├── MetastoreTimeoutError · MetastoreProtocolError · MetastoreAuthenticationError
    │   ├── OutcomeUnknownError · UnsupportedMethodError · NoSuchObjectError · AlreadyExistsError
    │   ├── InvalidObjectError · InvalidOperationError · MetastoreServerError
    │   └── TransactionError
    │       ├── NoSuchTransactionError · TransactionAbortedError ── ReadTransactionLostError
    │       └── NoSuchLockError · LockTimeoutError · LockLostError
    ├── StorageError
    │   ├── FileVanishedError
    │   ├── StoragePermissionError ── StorageCredentialsExpiredError
    │   └── StorageFullError · StorageUnavailableError · BucketMissingError · SourceNotAllowedError
    ├── ReplicationError
    │   ├── DumpIncompleteError · DumpCorruptError · TargetNotOursError · TargetChangedError
    │   ├── LocationConflictError · VerificationIncompleteError · CompactionRunningError
    │   ├── CycleRunningError ── CycleLostError
    │   ├── GroupMembershipError ── GroupBusyError
    │   ├── EventCorruptError · UnknownEventError · EventsLostError · SourceWentBackError
    │   └── SourceDirectoryMissingError · UnexplainedRemovalError · FailoverError · VerificationError
    ├── RemoteError
    │   ├── StatementError · NameTakenError · NotARemoteError · CyclicRemoteError
    │   └── RemoteUnsupportedError · RemoteDroppedError · RemoteUnavailableError
    ├── ClusterError
    │   ├── ClusterMetadataError · CopyRefusedError · CopySourceChangedError · PrimaryRefusedError
    │   └── RoutingError
    │       └── UnanalysableError · UnknownClusterError
    ├── StreamingError
    │   ├── StreamingConnectionError ── StreamingSettingsError
    │   ├── StreamingTableError ── StreamingColumnError
    │   ├── StreamingStateError
    │   ├── StreamingRecordError ── DeadLetterLimitError
    │   ├── StreamingSourceError ── StreamingKeyError
    │   ├── StreamingStorageError ── StreamingPartitionError
    │   └── StreamingTransactionError
    │       └── StreamingHeartbeatError · StreamingCommitUnknownError
    ├── TunnelError ── HostKeyError · TunnelAuthenticationError · TunnelUnreachableError
    ├── AcidFormatError · GatewayError
    ├── SparkJobError ── SparkRunTakenError · SparkRefusedError · SparkUnreachableError
    └── EmbeddedError ── JavaNotFoundError · JarDownloadError · MetastoreStartError

A retryable error may disappear if the same call is repeated later, with nothing changed. The message of every
error describes the event and its place; ``remedy`` describes the action to take. All errors survive pickling,
because Airflow and Spark send them between processes. Only the Airflow layer turns them into Airflow's
own exceptions.
"""

from __future__ import annotations

from typing import ClassVar

_REMEDY = " Remedy: "


class HiveFederationError(Exception):
    """Base of all errors of the package. A subclass is as retryable as its base, unless it names another.

    :param message: the event, and the database, table, partition or file that it concerns.
    :param remedy: the action to take; appended to the text.
    :param facts: typed attributes of the error, stored as :attr:`facts` and readable as attributes.
    """

    retryable: ClassVar[bool] = False

    def __init_subclass__(cls, *, retryable: bool | None = None, **keywords: object) -> None:
        super().__init_subclass__(**keywords)
        if retryable is not None:
            cls.retryable = retryable

    def __init__(self, message: str, *, remedy: str = "", **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.facts = facts

    def __getattr__(self, name: str) -> object:
        # Python calls this for other names than ordinary attributes; pickle rebuilds without `facts`.
        facts = self.__dict__.get("facts", {})
        if name in facts:
            return facts[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __str__(self) -> str:
        if not self.remedy:
            return self.message
        # A server's own text has no full stop.
        last = self.message[-1:]
        stop = "." if last.isalnum() or last in {"'", '"', ")", "]", ">"} else ""
        return f"{self.message}{stop}{_REMEDY}{self.remedy}"

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.remedy, self.facts)


def divided(text: str) -> tuple[str, str]:
    """Divide the text of an error into its message and its remedy, which is empty if the text has none."""
    message, _, remedy = text.partition(_REMEDY)
    return message, remedy


def _rebuild(
    cls: type[HiveFederationError], message: str, remedy: str, facts: dict[str, object]
) -> HiveFederationError:
    return cls(message, remedy=remedy, **facts)


class ConfigurationError(HiveFederationError):
    """The arguments, connection or settings are impossible in this combination or state."""


class SparkEnvironmentError(ConfigurationError):
    """Spark, Python or a package, of driver or executors, has a version that a job cannot run with."""


class HiddenLocationError(ConfigurationError):
    """Hive's readers would hide a directory that is to hold tables; ``path`` names it."""


class ClusterRegistryError(ConfigurationError):
    """The registry of clusters is malformed; ``reason`` describes the defect."""


class MetastoreError(HiveFederationError):
    """A metastore answered with an error, or did not answer."""


class MetastoreUnreachableError(MetastoreError, retryable=True):
    """No server answers at any of the URIs."""


class KdcUnreachableError(MetastoreUnreachableError):
    """No KDC of the realm answers, so that the client has no ticket for the metastore; ``realm`` names it."""


class MetastoreTimeoutError(MetastoreError, retryable=True):
    """The server did not answer within the deadline."""


class MetastoreProtocolError(MetastoreError):
    """The server on that port does not speak the Hive metastore's protocol."""


class MetastoreAuthenticationError(MetastoreError):
    """The server rejects the client's identity, or the client has no credentials to prove it."""


class OutcomeUnknownError(MetastoreError):
    """The connection broke inside a call that is not idempotent: the server may have executed it."""


class UnsupportedMethodError(MetastoreError):
    """The metastore's version does not have this method."""


class NoSuchObjectError(MetastoreError):
    """The database, table, partition, function or constraint does not exist."""


class AlreadyExistsError(MetastoreError):
    """The object to be created exists already."""


class InvalidObjectError(MetastoreError):
    """The metastore finds the object malformed."""


class InvalidOperationError(MetastoreError):
    """The metastore refuses the operation in the object's present state."""


class MetastoreServerError(MetastoreError):
    """The server failed internally, for instance with a MetaException."""


class TransactionError(MetastoreError):
    """Base of transaction and lock errors."""


class NoSuchTransactionError(TransactionError):
    """The transaction is unknown, or was finished and forgotten."""


class TransactionAbortedError(TransactionError):
    """The transaction was aborted: by its client, by a conflict, or by its timeout."""


class ReadTransactionLostError(TransactionAbortedError, retryable=True):
    """A read transaction ended that kept files for a list or a copy; another attempt opens its own."""


class NoSuchLockError(TransactionError):
    """The lock is unknown, or has timed out."""


class LockTimeoutError(TransactionError, retryable=True):
    """The lock was not granted in time."""


class LockLostError(TransactionError, retryable=True):
    """The metastore may have dropped locks before the work under them ended; ``tables`` has their tables."""


class StorageError(HiveFederationError):
    """A file system refused an operation; ``path`` names the file or directory."""


class FileVanishedError(StorageError, retryable=True):
    """A file that was listed no longer exists."""


class StoragePermissionError(StorageError):
    """The user may not read or write the path."""


class StorageCredentialsExpiredError(StoragePermissionError, retryable=True):
    """The credentials for a store have expired; the next attempt gets new ones, where they are renewed."""


class StorageFullError(StorageError):
    """The file system has no space or quota left."""


class StorageUnavailableError(StorageError, retryable=True):
    """A store does not answer or accepts no changes now: it is in safe mode or has no active NameNode."""


class BucketMissingError(StorageError):
    """The bucket or container of a path does not exist."""


class SourceNotAllowedError(StorageError):
    """The policy may not copy from the location of a file or directory of the source; ``path`` names it."""


class AcidFormatError(HiveFederationError):
    """A directory or file breaks Hive's ACID layout."""


class ReplicationError(HiveFederationError):
    """Base of the errors of replication."""


class DumpIncompleteError(ReplicationError):
    """The dump is not finished, or is out of date: a file of the source that it lists is gone."""


class DumpCorruptError(ReplicationError):
    """A file of the dump cannot be read, or does not match the dump's digest or version."""


class TargetNotOursError(ReplicationError):
    """The target exists and carries no marker of this policy."""


class TargetChangedError(ReplicationError):
    """Someone else changed the target; ``differences`` names the changes."""


class LocationConflictError(ReplicationError):
    """Two tables, or targets with one directory of dumps, would share or nest directories of the target;
    ``tables``, ``paths`` and ``other``, another policy, name them.
    """


class CycleRunningError(ReplicationError, retryable=True):
    """Another cycle of this policy is running."""


class CycleLostError(CycleRunningError):
    """This cycle has lost its lock: another may have taken its place, so this one changes nothing more."""


class CompactionRunningError(ReplicationError, retryable=True):
    """A compaction of the target is in the way of a load; ``table`` and ``partition`` name it."""


class GroupMembershipError(ReplicationError):
    """A policy's cycle breaks the rules of a consistency group; ``group`` and ``policies`` name both."""


class GroupBusyError(GroupMembershipError, retryable=True):
    """A policy cannot join or leave a group now, because transactions are open or a load has begun."""


class EventCorruptError(ReplicationError):
    """The message of a notification event cannot be read; ``event_id`` names the event."""


class UnknownEventError(ReplicationError):
    """This version does not know the types of some notification events; ``event_types`` names them."""


class EventsLostError(ReplicationError):
    """Events that a cycle needs are gone; ``table`` names the table that cannot be brought forward."""


class SourceWentBackError(ReplicationError):
    """The source has fewer, or other, events than the target has seen: it was restored or replaced."""


class SourceDirectoryMissingError(ReplicationError):
    """Directories of tables to replicate are missing; ``directories`` names them by table."""


class UnexplainedRemovalError(ReplicationError):
    """No event records why the source lacks ``tables``, or ``partitions`` and ``directories`` (by table)."""


class FailoverError(ReplicationError):
    """Source and target cannot switch roles in their present state."""


class VerificationError(ReplicationError):
    """Source and replica differ; ``differences`` names every difference."""


class VerificationIncompleteError(ReplicationError):
    """Rows of source or replica cannot be read or compared; ``failures`` names every table."""


class RemoteError(HiveFederationError):
    """Base of the errors of remotes; ``remote`` names the remote, if one is concerned."""


class StatementError(RemoteError):
    """A statement cannot be parsed at ``line``, ``column`` (from 1); ``expected`` names the valid syntax."""


class NameTakenError(RemoteError):
    """The local name belongs to a table or database that is not this remote."""


class NotARemoteError(RemoteError):
    """The statement names a table or database that is no remote or does not exist."""


class CyclicRemoteError(RemoteError):
    """The remote table or database is itself a remote that leads back to the local metastore."""


class RemoteUnsupportedError(RemoteError):
    """The table cannot be linked: it is a view, or a storage handler keeps its data."""


class RemoteDroppedError(RemoteError):
    """The table or database does not exist at the remote (any more)."""


class RemoteUnavailableError(RemoteError, retryable=True):
    """The remote does not answer, or did not answer a moment ago."""


class ClusterError(HiveFederationError):
    """Base of the errors of clusters; ``cluster`` names the cluster, if one is concerned."""


class ClusterMetadataError(ClusterError):
    """Parameters ``hive.cluster.*`` contradict each other; ``table`` and ``partition`` name the object."""


class CopyRefusedError(ClusterError):
    """A table or partition cannot be copied to a cluster; ``table`` and ``partition`` name it."""


class CopySourceChangedError(ClusterError, retryable=True):
    """The primary changed while it was copied; ``table`` and ``partition`` name the object."""


class PrimaryRefusedError(ClusterError):
    """A cluster cannot become a table's primary; ``table`` and ``partition`` name the obstacle."""


class RoutingError(ClusterError):
    """No cluster can run a statement; ``decision`` holds every table and the clusters tried."""


class UnanalysableError(RoutingError):
    """The tables of a statement are not known for certain; ``line`` and ``column`` hold the place."""


class UnknownClusterError(RoutingError):
    """No cluster of that name is configured; ``cluster`` names it."""


class StreamingError(HiveFederationError):
    """Base of the errors of streaming ingest."""


class StreamingConnectionError(StreamingError, retryable=True):
    """No metastore can be reached."""


class StreamingSettingsError(StreamingConnectionError, retryable=False):
    """The settings of a builder or a request do not describe a connection."""


class StreamingTableError(StreamingError):
    """The table does not exist, or records cannot be streamed into it."""


class StreamingColumnError(StreamingTableError):
    """The columns of the records are not those of the table; ``missing`` and ``unknown`` name them."""


class StreamingStateError(StreamingError):
    """A call is not legal in the connection's present state; ``state`` names the state."""


class StreamingRecordError(StreamingError):
    """A record cannot be parsed; its transaction goes on. ``record_number`` and ``column`` locate it."""


class DeadLetterLimitError(StreamingRecordError):
    """The bad records exceed the limit of dead letters; ``limit`` is that limit."""


class StreamingSourceError(StreamingError, retryable=True):
    """The source database refuses the query or has disconnected."""


class StreamingKeyError(StreamingSourceError, retryable=False):
    """The rows of the query break the contract of their key."""


class StreamingStorageError(StreamingError, retryable=True):
    """Files could not be written; the connection can only be closed."""


class StreamingPartitionError(StreamingStorageError):
    """A partition could not be created."""


class StreamingTransactionError(StreamingError, retryable=True):
    """A transaction could not be begun, committed or aborted; ``txn_id`` names it."""


class StreamingHeartbeatError(StreamingTransactionError):
    """The metastore has aborted or forgotten the transaction; the connection can only be closed."""


class StreamingCommitUnknownError(StreamingTransactionError, retryable=False):
    """The connection broke inside a commit, and the metastore does not report the outcome."""


class TunnelError(HiveFederationError):
    """An SSH route failed; ``hop`` names the hop that failed."""


class HostKeyError(TunnelError):
    """A host's key is not among the known keys, or differs from the known one."""


class TunnelAuthenticationError(TunnelError):
    """A hop refuses the user and key, or the key cannot be used."""


class TunnelUnreachableError(TunnelError, retryable=True):
    """A hop, or the server behind the last hop, does not answer."""


class GatewayError(HiveFederationError):
    """The gateway refuses a call; ``status`` holds the reason in one word."""


class SparkJobError(HiveFederationError):
    """A Spark job of this package failed."""


class SparkRunTakenError(SparkJobError, retryable=True):
    """Another submission of a job has taken its run; ``report`` is the URI of the run's report."""


class SparkRefusedError(SparkJobError):
    """The cluster refuses a job, or has killed its container; ``reason`` holds the cause in one word."""


class SparkUnreachableError(SparkJobError, retryable=True):
    """YARN's ResourceManager or Spark's master does not answer; ``address`` is its address."""


class EmbeddedError(HiveFederationError):
    """Base of the embedded metastore's errors."""


class JavaNotFoundError(EmbeddedError):
    """No Java runtime that Hive runs on was found."""


class JarDownloadError(EmbeddedError):
    """The jars could not be downloaded, or do not match the lock file."""


class MetastoreStartError(EmbeddedError):
    """The metastore, or its database server, did not start; ``log_path`` names its log."""
