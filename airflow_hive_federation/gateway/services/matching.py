"""Matches fields of Hive's own proto with fields of the Thrift interface definition by their names.

Hive's proto was written by hand: ``db_name`` stands for ``dbName``; a request has the fields of the method's
argument, and a response the fields of its answer. :data:`SAME` lists the names that no rule matches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_hive_federation.gateway.services.layout import STRUCT
from airflow_hive_federation.metastore.struct import Spec, Struct

#: Fields of Hive's proto, by message and name → their names in the interface definition.
SAME = {
    ("StorageDescriptor", "sor_cols"): "sortCols",
    ("TxnInfo", "info"): "id",
    ("UpdateTransactionStatisticsRequest", "inserted_count"): "insertCount",
    ("ShowCompactResponseElement", "highest_txn_id"): "hightestTxnId",
    ("GetPartitionsSpecByExprResponse", "partition_specs"): "partitionsSpec",
    ("GetLatestCommittedCompactionInfoRequest", "partionnames"): "partitionnames",
    ("TruncateTableRequest", "evironment_context"): "environmentContext",
    ("AlterTableReqRequest", "evironment_context"): "environmentContext",
    ("DropDataConnectorRequest", "name"): "connectorName",
    ("AlterDataConnectorRequest", "name"): "connectorName",
    ("AlterDataConnectorRequest", "connector"): "newConnector",
}


def plain(name: str) -> str:
    """Return a name in lower case, without underscores."""
    return name.replace("_", "").lower()


def _spellings(message: str, name: str) -> tuple[str, ...]:
    """Return possible names of a field in the Thrift definition, in :func:`plain` form, likeliest first."""
    if (same := SAME.get((message, name))) is not None:
        return (plain(same),)
    # Names of lists may end in an extra "s" or "es": file_lists, resource_urises.
    plain_name = plain(name)
    return tuple(dict.fromkeys((plain_name, plain_name.removesuffix("s"), plain_name.removesuffix("es"))))


@dataclass(frozen=True, kw_only=True)
class Match:
    """The comparison of a message's fields with a struct's fields.

    :param pairs: number and name in the message, and the struct's field as in a ``thrift_spec``.
    :param only_message: names of fields that only the message has.
    :param only_struct: names of fields that only the struct has.
    """

    pairs: tuple[tuple[int, str, tuple[Any, ...]], ...]
    only_message: tuple[str, ...]
    only_struct: tuple[str, ...]

    @property
    def distance(self) -> int:
        """Number of fields without a counterpart."""
        return len(self.only_message) + len(self.only_struct)


def match(described: Any, spec: Spec) -> Match:
    """Compare a message's descriptor with a struct's fields."""
    fields = {plain(field[1]): field for field in spec.values()}
    pairs, extra = [], []
    for proto_field in described.fields:
        spellings = _spellings(described.name, proto_field.name)
        field = next((fields.pop(name) for name in spellings if name in fields), None)
        if field is None:
            extra.append(proto_field.name)
        else:
            pairs.append((proto_field.number, proto_field.name, field))
    return Match(
        pairs=tuple(pairs),
        only_message=tuple(extra),
        only_struct=tuple(field[1] for field in fields.values()),
    )


def single_struct(spec: Spec) -> type[Struct] | None:
    """Return the struct of the only field of a method's arguments or answer; ``None`` for all others."""
    if len(spec) != 1:
        return None
    (field,) = spec.values()
    return field[2] if field[0] == STRUCT else None
