"""Every error the package raises on purpose.

::

    HiveFederationError
    ├── ConfigurationError            what the caller asked for cannot be: fix the arguments
    │   ├── HiddenLocationError           Hive's readers would hide everything below a directory
    │   └── ClusterRegistryError          the registry of clusters is malformed; ``reason`` says how
    ├── MetastoreError                a metastore answered with an error, or did not answer
    │   ├── MetastoreUnreachableError     no server behind any URI             (retryable)
    │   ├── MetastoreTimeoutError         no answer within the deadline        (retryable)
    │   ├── MetastoreAuthenticationError  our principal or password is refused
    │   ├── MetastoreProtocolError        something else answers on that port
    │   ├── OutcomeUnknownError           the connection broke inside a call that may have been carried out
    │   ├── UnsupportedMethodError        this metastore's version lacks the method
    │   ├── NoSuchObjectError · AlreadyExistsError · InvalidObjectError · InvalidOperationError
    │   ├── MetastoreServerError          MetaException and whatever else the server could not do
    │   └── TransactionError
    │       ├── NoSuchTransactionError · TransactionAbortedError · NoSuchLockError
    │       └── LockTimeoutError          not granted in time                  (retryable)
    ├── StorageError                  a file system refused
    │   ├── FileVanishedError             a listed file is gone                (retryable)
    │   ├── StoragePermissionError · StorageFullError
    │   ├── StorageUnavailableError       a store does not answer, or not now  (retryable)
    │   ├── SourceNotAllowedError         a source that a policy may not copy from
    │   └── DigestMismatchError           the bytes read are not the bytes promised
    ├── AcidFormatError               a directory or file that breaks Hive's ACID layout
    ├── ReplicationError
    │   ├── DumpIncompleteError · DumpCorruptError
    │   ├── TargetNotOursError            the target exists and carries no marker of this policy
    │   ├── TargetChangedError            the target was changed by someone else
    │   ├── LocationConflictError         two tables or policies would share directories of the target
    │   ├── CycleRunningError             another cycle of this policy is at work  (retryable)
    │   │   └── CycleLostError                this cycle's lock is lost; ``reason`` says how   (retryable)
    │   ├── EventCorruptError             a notification event that cannot be read; ``event_id`` names it
    │   ├── UnknownEventError             an event of a type this version does not know
    │   ├── EventsLostError               events a cycle needs are gone, and nothing else tells what they did
    │   ├── SourceWentBackError           the source's events are fewer, or others, than the target has seen
    │   ├── SourceDirectoryMissingError   a table's directory is not there; ``directories`` names it
    │   ├── UnexplainedRemovalError       the source lacks what the target has, and no event tells why
    │   ├── FailoverError                 source and target cannot change places as they are
    │   ├── VerificationError             source and replica differ; ``differences`` names them
    │   └── VerificationIncompleteError   rows cannot be read, and so not be compared; see ``failures``
    ├── RemoteError                   a remote table or database; ``remote`` names it
    │   ├── StatementError                no statement; ``line``, ``column`` and ``expected`` say why
    │   ├── NameTakenError                the local name belongs to something else
    │   ├── NotARemoteError               what the statement names is no remote
    │   ├── CyclicRemoteError             the remote leads back to where it is made
    │   ├── RemoteUnsupportedError        a table that cannot be linked, with the reason
    │   ├── RemoteDroppedError            the table or database is gone at the remote
    │   └── RemoteUnavailableError        the remote does not answer               (retryable)
    ├── ClusterError                  clusters of one metastore; ``cluster`` names one
    │   ├── ClusterMetadataError          a table's or partition's cluster parameters contradict each other
    │   ├── CopyRefusedError              what cannot be copied to a cluster, with the reason
    │   ├── CopySourceChangedError        the primary changed while it was copied  (retryable)
    │   ├── PrimaryRefusedError           a cluster that cannot become the primary, with the reason
    │   └── RoutingError                  no cluster can run a statement; ``decision`` says why
    │       ├── UnanalysableError             the tables of a statement are not known for certain
    │       └── UnknownClusterError           no cluster of that name is configured
    ├── TunnelError                   an SSH route; ``hop`` names where it failed
    │   ├── HostKeyError                  a host whose key is unknown, or another than the known one
    │   ├── TunnelAuthenticationError     a hop refuses the user and key
    │   └── TunnelUnreachableError        a hop, or the metastore behind it, does not answer  (retryable)
    ├── GatewayError                  a call that the gateway refuses; ``status`` says of which kind it is
    ├── SparkJobError                 a Spark job of ours failed
    └── EmbeddedError                 the local metastore
        ├── JavaNotFoundError · JarDownloadError
        └── MetastoreStartError

Retryable means: the same call may succeed later with nothing changed. Every error says what happened and
where; ``remedy`` says what to do. All of them survive pickling (Airflow and Spark send them between
processes). Only the Airflow surface turns them into Airflow's own exceptions.
"""

from __future__ import annotations

from typing import Any, ClassVar


class HiveFederationError(Exception):
    """Base of the tree.

    :param message: what happened, and to which database, table, partition or file.
    :param remedy: what the reader can do about it; appended to the text.
    :param facts: typed attributes of the error, kept as :attr:`facts` and readable as attributes.
    """

    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, remedy: str = "", **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.facts = facts

    def __getattr__(self, name: str) -> Any:
        # Only reached for names that are not ordinary attributes. `facts` itself may be missing while
        # pickle rebuilds the object.
        facts = self.__dict__.get("facts", {})
        if name in facts:
            return facts[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __str__(self) -> str:
        return f"{self.message} Remedy: {self.remedy}" if self.remedy else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.remedy, self.facts)


def _rebuild(
    cls: type[HiveFederationError], message: str, remedy: str, facts: dict[str, Any]
) -> HiveFederationError:
    return cls(message, remedy=remedy, **facts)


class ConfigurationError(HiveFederationError):
    """The arguments, connection or settings cannot work as they are."""


class HiddenLocationError(ConfigurationError):
    """Hive's readers hide a directory that is to hold tables; ``path`` names it."""


class ClusterRegistryError(ConfigurationError):
    """The registry of clusters is malformed; ``reason`` says how."""


class MetastoreError(HiveFederationError):
    """A metastore answered with an error, or did not answer."""


class MetastoreUnreachableError(MetastoreError):
    """No server behind any of the URIs."""

    retryable = True


class MetastoreTimeoutError(MetastoreError):
    """The server did not answer within the deadline."""

    retryable = True


class MetastoreProtocolError(MetastoreError):
    """What answers does not speak the Hive metastore's protocol."""


class MetastoreAuthenticationError(MetastoreError):
    """The server does not accept who we are, or there is nothing to prove it by."""


class OutcomeUnknownError(MetastoreError):
    """The connection broke inside a call that is not idempotent: it may have been carried out."""


class UnsupportedMethodError(MetastoreError):
    """The metastore's version has no such method."""


class NoSuchObjectError(MetastoreError):
    """Database, table, partition, function or constraint does not exist."""


class AlreadyExistsError(MetastoreError):
    """The object to be created exists."""


class InvalidObjectError(MetastoreError):
    """The metastore finds the object malformed."""


class InvalidOperationError(MetastoreError):
    """The metastore refuses the operation in the object's present state."""


class MetastoreServerError(MetastoreError):
    """MetaException and other failures inside the server."""


class TransactionError(MetastoreError):
    """Base of transaction and lock errors."""


class NoSuchTransactionError(TransactionError):
    """The transaction is unknown, or was finished and forgotten."""


class TransactionAbortedError(TransactionError):
    """The transaction was aborted, by us, by a conflict or by its timeout."""


class NoSuchLockError(TransactionError):
    """The lock is unknown, or has timed out."""


class LockTimeoutError(TransactionError):
    """The lock was not granted in time."""

    retryable = True


class StorageError(HiveFederationError):
    """A file system refused; ``path`` names the file or directory."""


class FileVanishedError(StorageError):
    """A file that was listed is gone."""

    retryable = True


class StoragePermissionError(StorageError):
    """No right to read or write the path."""


class StorageFullError(StorageError):
    """No space, or no quota, left."""


class StorageUnavailableError(StorageError):
    """A store does not answer, or takes no changes now: no NameNode is active, or it is in safe mode."""

    retryable = True


class SourceNotAllowedError(StorageError):
    """A file or directory of a source lies where its policy may not copy from; ``path`` names it."""


class DigestMismatchError(StorageError):
    """The bytes read differ from the digest recorded for them."""


class AcidFormatError(HiveFederationError):
    """A directory or file that breaks Hive's ACID layout."""


class ReplicationError(HiveFederationError):
    """Base of replication's own errors."""


class DumpIncompleteError(ReplicationError):
    """The dump was not finished; run it again."""


class DumpCorruptError(ReplicationError):
    """A file of the dump cannot be read, or is not of the dump's digest or version."""


class TargetNotOursError(ReplicationError):
    """The target exists and carries no marker of this policy."""


class TargetChangedError(ReplicationError):
    """The target was changed by someone else; ``differences`` names what."""


class LocationConflictError(ReplicationError):
    """Two tables would share or nest directories of the target; ``tables`` and ``paths`` name them.

    So would targets of two metastores with one directory of dumps. ``other`` names the other policy where
    there are two.
    """


class CycleRunningError(ReplicationError):
    """Another cycle of this policy is at work."""

    retryable = True


class CycleLostError(CycleRunningError):
    """This cycle has lost its lock: another may have taken its place, so nothing more is changed."""


class EventCorruptError(ReplicationError):
    """A notification event whose message cannot be read; ``event_id`` names it."""


class UnknownEventError(ReplicationError):
    """Notification events of types this version does not know; ``event_types`` names them."""


class EventsLostError(ReplicationError):
    """Events a cycle needs are gone; ``table`` names the table that cannot be brought forward."""


class SourceWentBackError(ReplicationError):
    """The source's events are fewer, or others, than the target has seen: it was restored, or is another."""


class SourceDirectoryMissingError(ReplicationError):
    """Directories of tables to replicate are not there; ``directories`` names them by table."""


class UnexplainedRemovalError(ReplicationError):
    """The source lacks what the target has, and no event of the source tells that it was removed.

    ``tables``, ``partitions`` (by table) and ``directories`` (by table) name what the target would lose.
    """


class FailoverError(ReplicationError):
    """Source and target cannot change places as they are."""


class VerificationError(ReplicationError):
    """Source and replica differ; ``differences`` names every difference."""


class VerificationIncompleteError(ReplicationError):
    """Rows of source or replica cannot be read, and so not be compared; ``failures`` names every table."""


class RemoteError(HiveFederationError):
    """Base of the errors of remotes; ``remote`` names the remote where there is one."""


class StatementError(RemoteError):
    """A statement that cannot be parsed: ``line`` and ``column`` (from 1), and what was ``expected``."""


class NameTakenError(RemoteError):
    """The local name belongs to a table or database that is not this remote."""


class NotARemoteError(RemoteError):
    """The statement names a table or database that is no remote, or that does not exist."""


class CyclicRemoteError(RemoteError):
    """The remote table or database is itself a remote that leads back to the local metastore."""


class RemoteUnsupportedError(RemoteError):
    """What cannot be linked: a view, a table kept by a storage handler."""


class RemoteDroppedError(RemoteError):
    """The remote's table or database does not exist (any more)."""


class RemoteUnavailableError(RemoteError):
    """The remote does not answer, or did not a moment ago."""

    retryable = True


class ClusterError(HiveFederationError):
    """Base of the errors of clusters; ``cluster`` names the cluster where there is one."""


class ClusterMetadataError(ClusterError):
    """Parameters ``hive.cluster.*`` that contradict each other; ``table``, ``partition`` name the object."""


class CopyRefusedError(ClusterError):
    """A table or partition that cannot be copied to a cluster; ``table`` and ``partition`` name it."""


class CopySourceChangedError(ClusterError):
    """The primary changed while it was copied; ``table`` and ``partition`` name the object."""

    retryable = True


class PrimaryRefusedError(ClusterError):
    """A cluster that cannot become a table's primary; ``table`` and ``partition`` name what is in the way."""


class RoutingError(ClusterError):
    """No cluster can run a statement; ``decision`` holds every table and what was tried."""


class UnanalysableError(RoutingError):
    """The tables of a statement are not known for certain; ``line`` and ``column`` say where."""


class UnknownClusterError(RoutingError):
    """No cluster of that name is configured; ``cluster`` names it."""


class TunnelError(HiveFederationError):
    """An SSH route failed; ``hop`` names where."""


class HostKeyError(TunnelError):
    """A host's key is not among the known ones, or is another."""


class TunnelAuthenticationError(TunnelError):
    """A hop refuses the user and key, or the key cannot be used."""


class TunnelUnreachableError(TunnelError):
    """A hop, or what lies behind the last one, does not answer."""

    retryable = True


class GatewayError(HiveFederationError):
    """The gateway refuses a call; ``status`` says why in one word."""


class SparkJobError(HiveFederationError):
    """A Spark job of ours failed."""


class EmbeddedError(HiveFederationError):
    """Base of the embedded metastore's errors."""


class JavaNotFoundError(EmbeddedError):
    """No Java runtime that Hive runs on."""


class JarDownloadError(EmbeddedError):
    """The jars could not be fetched, or are not those of the lock."""


class MetastoreStartError(EmbeddedError):
    """The metastore did not come up; ``log_path`` names its log."""
