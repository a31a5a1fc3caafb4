"""Translates the exceptions of a Hive metastore to the errors of this package."""

from __future__ import annotations

from airflow_hive_federation import errors
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.protocol import ApplicationFault
from airflow_hive_federation.metastore.struct import Fault

ERRORS: dict[type[Fault], type[errors.MetastoreError]] = {
    types.AlreadyExistsException: errors.AlreadyExistsError,
    types.CompactionAbortedException: errors.InvalidOperationError,
    types.ConfigValSecurityException: errors.InvalidOperationError,
    types.InvalidInputException: errors.InvalidObjectError,
    types.InvalidObjectException: errors.InvalidObjectError,
    types.InvalidOperationException: errors.InvalidOperationError,
    types.InvalidPartitionException: errors.InvalidObjectError,
    types.MetaException: errors.MetastoreServerError,
    types.NoSuchCompactionException: errors.NoSuchObjectError,
    types.NoSuchLockException: errors.NoSuchLockError,
    types.NoSuchObjectException: errors.NoSuchObjectError,
    types.NoSuchTxnException: errors.NoSuchTransactionError,
    types.TxnAbortedException: errors.TransactionAbortedError,
    types.TxnOpenException: errors.InvalidOperationError,
    types.UnknownDBException: errors.NoSuchObjectError,
    types.UnknownPartitionException: errors.NoSuchObjectError,
    types.UnknownTableException: errors.NoSuchObjectError,
}

_REMEDIES: dict[type[errors.MetastoreError], str] = {
    errors.NoSuchObjectError: "Check the name, and that this is the right metastore.",
}


def translate(fault: Fault, method: str, uri: str) -> errors.MetastoreError:
    """Return our error for a server's exception; the error repeats its text, alone in ``server_message``."""
    kind = ERRORS.get(type(fault), errors.MetastoreServerError)
    remedy = _REMEDIES.get(kind, "")
    if isinstance(fault, ApplicationFault) and fault.type == ApplicationFault.UNKNOWN_METHOD:
        kind = errors.UnsupportedMethodError
        remedy = "Use a metastore of a newer Hive version, or a call that this one has."
    return kind(
        f"{method} at {uri}: {fault}",
        remedy=remedy,
        method=method,
        uri=uri,
        server_exception=type(fault).__name__,
        server_message=fault.text(),
    )
