"""Which field of Hive's own messages is which of the interface definition. Pure; by name.

Hive's proto was written by hand: ``db_name`` stands for ``dbName``, an argument's fields stand in the request
itself, and an answer's in the response. Names that no rule finds are in :data:`SAME`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from airflow_hive_federation.gateway.services.layout import MAP, STRUCT, pair
from airflow_hive_federation.metastore.struct import Spec, Struct

#: Fields of Hive's proto, by message and name, and the interface definition's names of them.
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
    """Return a name without what its style adds."""
    return name.replace("_", "").lower()


def _spellings(message: str, name: str) -> tuple[str, ...]:
    """The names a field may have in the interface definition, as :func:`plain` has them, likeliest first."""
    if (same := SAME.get((message, name))) is not None:
        return (plain(same),)
    # Lists have an s too many, or a word: resource_urises, file_lists.
    known = plain(name)
    return tuple(dict.fromkeys((known, known.removesuffix("s"), known.removesuffix("es"))))


@dataclass(frozen=True, kw_only=True)
class Match:
    """A message beside a struct.

    :param pairs: number and name in the message, and the struct's field as in a ``thrift_spec``.
    :param only_message: names that only the message has.
    :param only_struct: names that only the struct has.
    """

    pairs: tuple[tuple[int, str, tuple[Any, ...]], ...]
    only_message: tuple[str, ...]
    only_struct: tuple[str, ...]

    @property
    def distance(self) -> int:
        """How many fields have no counterpart."""
        return len(self.only_message) + len(self.only_struct)


def match(described: Any, spec: Spec) -> Match:
    """Compare a message's descriptor with a struct's fields."""
    fields = {plain(field[1]): field for field in spec.values()}
    pairs, extra = [], []
    for one in described.fields:
        spellings = _spellings(described.name, one.name)
        field = next((fields.pop(name) for name in spellings if name in fields), None)
        if field is None:
            extra.append(one.name)
        else:
            pairs.append((one.number, one.name, field))
    return Match(
        pairs=tuple(pairs),
        only_message=tuple(extra),
        only_struct=tuple(field[1] for field in fields.values()),
    )


def single_struct(spec: Spec) -> type[Struct] | None:
    """Return the struct of which a method's arguments or answer consist."""
    if len(spec) != 1:
        return None
    (field,) = spec.values()
    return field[2] if field[0] == STRUCT else None


def structs_in(field: tuple[Any, ...]) -> Iterator[type[Struct]]:
    """Yield the structs that a field mentions."""

    def walk(ttype: int, inner: Any) -> Iterator[type[Struct]]:
        if ttype == STRUCT:
            yield inner
        elif ttype == MAP:
            for part in inner:
                yield from walk(*pair(part))
        elif inner is not None:
            yield from walk(*pair(inner))

    yield from walk(field[0], field[2] if len(field) == 4 else None)
