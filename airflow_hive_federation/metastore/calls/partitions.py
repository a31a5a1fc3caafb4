"""Makes the metastore's calls for partitions in batches, because a table may have a million."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import groupby
from typing import cast

from airflow_hive_federation.errors import MetastoreServerError, NoSuchObjectError
from airflow_hive_federation.metastore.calls.base import ENGINE, batches, environment_context
from airflow_hive_federation.metastore.calls.partition_pages import ONE_PAGE, Page, page_size, pages
from airflow_hive_federation.metastore.calls.statistics import StatisticsCalls
from airflow_hive_federation.metastore.grpc_streams import PARTITIONS, NotStreamed, partitions_query
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.partitions import partition_name, unescape

log = logging.getLogger(__name__)

ALL = -1  # the value of max_parts for no limit: it is an i16, whose numbers end at 32,767
PARTITIONS_PER_CALL = 500
#: Partitions that a condition may hold for, per partition to read.
_FEW_OTHERS = 2
#: Part of the error of a metastore whose listener writes a second event for one call
#: (``ListenerEvent.putParameter``).
_SECOND_EVENT = "overwrite a read-only parameter: DB_NOTIFICATION_EVENT_ID_KEY_NAME"


class PartitionCalls(StatisticsCalls):
    """Calls for partitions."""

    def list_partition_names(self, database: str, table: str) -> list[str]:
        """Return the names of all partitions of a table (``day=2026-01-01/hour=7``, with Hive's escapes)."""
        return cast("list[str]", self.call("get_partition_names", self._database_name(database), table, ALL))

    def iter_partitions(
        self,
        database: str,
        table: str,
        *,
        names: Sequence[str] | None = None,
        with_column_stats: bool = False,
        valid_write_ids: str | None = None,
        batch_size: int = PARTITIONS_PER_CALL,
    ) -> Iterator[types.Partition]:
        """Yield partitions of a table; partitions that do not exist (any more) are left out.

        :param names: names of the partitions to read; ``None`` reads all, in answers of bounded size.
        :param with_column_stats: fill ``colStats`` with each partition's column statistics.
        :param valid_write_ids: the table's valid write ids in Hive's text form; for an ACID table the server
            sets ``isStatsCompliant`` if the statistics are valid for them.
        :param batch_size: names per call.
        """
        if names is not None:
            yield from self._partitions_by_name(
                database,
                table,
                names,
                with_column_stats=with_column_stats,
                valid_write_ids=valid_write_ids,
                batch_size=batch_size,
            )
            return
        seen = _Seen()
        if not with_column_stats:
            try:
                query = partitions_query(self.settings.catalog, database, table)
                for partition in self._streamed(PARTITIONS, types.Partition, query):
                    seen.add(partition)
                    yield partition
                return
            except NotStreamed as error:
                log.debug("partitions of %s.%s are read by calls: %s", database, table, error)
        for page in self.partition_pages(database, table, with_column_stats=with_column_stats):
            partitions = self.read_page(database, table, page)
            if with_column_stats:
                self._attach_column_stats(database, table, partitions, valid_write_ids)
            yield from (partition for partition in partitions if not seen.has(partition))

    def partition_pages(
        self, database: str, table: str, *, with_column_stats: bool = False
    ) -> Iterator[Page]:
        """Divide a table's partitions into pages, each of which takes a bounded amount of memory.

        :param with_column_stats: the caller reads column statistics with the partitions.
        """
        names = self.list_partition_names(database, table)
        described = self.get_table(database, table) if len(names) > ONE_PAGE else types.Table()
        columns = len((described.sd and described.sd.cols) or ())
        size = page_size(columns, with_column_stats=with_column_stats)
        if len(names) > size:
            keys = [(key.name or "", key.type or "") for key in described.partitionKeys or ()]
            yield from pages(keys, names, size)
        elif names:
            yield Page(names=names, everything=True)

    def read_page(self, database: str, table: str, page: Page) -> list[types.Partition]:
        """Read the partitions of a page; partitions that do not exist any more are left out."""
        if page.everything:
            partitions = self.get_partitions(database, table)
            return partitions or list(self._partitions_by_name(database, table, page.names))
        return self._page(database, table, _key_names(page.names), page)

    def _partitions_by_name(
        self,
        database: str,
        table: str,
        names: Sequence[str],
        *,
        with_column_stats: bool = False,
        valid_write_ids: str | None = None,
        batch_size: int = PARTITIONS_PER_CALL,
    ) -> Iterator[types.Partition]:
        for chunk in batches(names, batch_size):
            request = types.GetPartitionsByNamesRequest(
                db_name=self._database_name(database),
                tbl_name=table,
                names=chunk,
                get_col_stats=with_column_stats,
                validWriteIdList=valid_write_ids,
                engine=ENGINE,
                **self._processor(),
            )
            yield from self.call("get_partitions_by_names_req", request).partitions

    def _page(self, database: str, table: str, keys: Sequence[str], page: Page) -> list[types.Partition]:
        """Read a page by its condition, and by name the partitions that the condition misses."""
        by_name: dict[str, types.Partition] = {}
        if page.condition:
            try:
                partitions = self.find_partitions(database, table, page.condition)
            except MetastoreServerError:
                # The server cannot read the condition. Any other error comes up again in the call by name.
                partitions = []
            by_name = {partition_name(keys, partition.values or []): partition for partition in partitions}
        here = [by_name[name] for name in page.names if name in by_name]
        missing = [name for name in page.names if name not in by_name]
        return here + list(self._partitions_by_name(database, table, missing))

    def get_partitions_of(
        self,
        database: str,
        table: str,
        names: Sequence[str],
        *,
        with_column_stats: bool = False,
        valid_write_ids: str | None = None,
    ) -> list[types.Partition]:
        """Read thousands of partitions by name; partitions that do not exist (any more) are left out.

        Partitions that are adjacent by a partition key are read by a range of that key: by name, some
        databases compare each partition of the table with each name.

        :param with_column_stats: see :meth:`iter_partitions`.
        :param valid_write_ids: see :meth:`iter_partitions`.
        """
        partitions = self._of_names(database, table, names)
        if with_column_stats:
            self._attach_column_stats(database, table, partitions, valid_write_ids)
        return partitions

    def _of_names(self, database: str, table: str, names: Sequence[str]) -> list[types.Partition]:
        if len(names) <= PARTITIONS_PER_CALL:
            return list(self._partitions_by_name(database, table, names))
        keys = [
            (key.name or "", key.type or "") for key in self.get_table(database, table).partitionKeys or ()
        ]
        partitions: list[types.Partition] = []
        for page in pages(keys, names, len(names)):
            if self._holds_few_others(database, table, page):
                partitions += self._page(database, table, [key for key, _ in keys], page)
            else:
                partitions += self._partitions_by_name(
                    database, table, page.names, batch_size=len(page.names)
                )
        return partitions

    def _holds_few_others(self, database: str, table: str, page: Page) -> bool:
        """Return whether a page's condition holds for at most twice as many partitions as the page has."""
        if not page.condition:
            return False
        try:
            held = self.call(
                "get_num_partitions_by_filter", self._database_name(database), table, page.condition
            )
        except MetastoreServerError:
            # The server cannot read the condition. Any other error comes up again in the call by name.
            return False
        return bool(held <= _FEW_OTHERS * len(page.names))

    def find_partitions(self, database: str, table: str, where: str) -> list[types.Partition]:
        """Read the partitions that match a condition on partition keys, ``day >= '2026-01-01'`` for instance.

        :raises MetastoreServerError: if the metastore cannot read the condition.
        """
        partitions = self.call("get_partitions_by_filter", self._database_name(database), table, where, ALL)
        return cast("list[types.Partition]", partitions)

    def get_partitions(self, database: str, table: str) -> list[types.Partition]:
        """Read all partitions in one answer; return an empty list if the server limits its answers."""
        try:
            partitions = self.call("get_partitions", self._database_name(database), table, ALL)
        except MetastoreServerError:
            # metastore.limit.partition.request. Any other error comes up again in the calls by name.
            return []
        return cast("list[types.Partition]", partitions)

    def _attach_column_stats(
        self, database: str, table: str, partitions: list[types.Partition], valid_write_ids: str | None
    ) -> None:
        described = self.get_table(database, table)
        keys = [key.name or "" for key in described.partitionKeys or []]
        columns = [column.name or "" for column in (described.sd and described.sd.cols) or []]
        by_name = {partition_name(keys, partition.values or []): partition for partition in partitions}
        for names in batches(by_name, PARTITIONS_PER_CALL):
            answer = self._partitions_statistics(database, table, names, columns, valid_write_ids)
            for name, statistics in (answer.partStats or {}).items():
                by_name[name].colStats = types.ColumnStatistics(
                    statsDesc=types.ColumnStatisticsDesc(
                        isTblLevel=False,
                        dbName=database,
                        tableName=table,
                        partName=name,
                        catName=self._catalog(),
                    ),
                    statsObj=statistics,
                    isStatsCompliant=answer.isStatsCompliant,
                    engine=ENGINE,
                )

    def add_partitions(
        self,
        partitions: Iterable[types.Partition],
        *,
        if_not_exists: bool = True,
        batch_size: int = PARTITIONS_PER_CALL,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Create partitions, ``batch_size`` per call; a call creates all of its partitions or none.

        :param if_not_exists: leave existing partitions unchanged.
        :raises AlreadyExistsError: if a partition exists and ``if_not_exists`` is not set.
        """
        for (database, table), group in groupby(
            partitions, lambda partition: (partition.dbName, partition.tableName)
        ):
            for parts in batches(group, batch_size):
                request = types.AddPartitionsRequest(
                    dbName=database,
                    tblName=table,
                    parts=parts,
                    ifNotExists=if_not_exists,
                    needResult=False,
                    catName=self._catalog(),
                    environmentContext=environment_context(environment),
                )
                self.call("add_partitions_req", request)

    def alter_partitions(
        self,
        database: str,
        table: str,
        partitions: Sequence[types.Partition],
        *,
        environment: Mapping[str, str] | None = None,
        valid_write_ids: str | None = None,
        write_id: int | None = None,
        batch_size: int = PARTITIONS_PER_CALL,
    ) -> None:
        """Replace the metadata of existing partitions, which the metastore finds by their values.

        Each call has partitions of one write id only: for a second write id, the metastore's listener would
        write a second event, and fail (``DbNotificationListener.onAlterPartitions``). The metastore fills in
        the write id of partitions that come without one; where these ids differ, the call fails and is
        repeated for each half of its partitions.
        """
        ordered = sorted(partitions, key=_write_id)
        runs = (run for _, run in groupby(ordered, _write_id))
        for chunk in (chunk for run in runs for chunk in batches(run, batch_size)):
            request = types.AlterPartitionsRequest(
                catName=self._catalog(),
                dbName=database,
                tableName=table,
                partitions=chunk,
                environmentContext=environment_context(environment),
                validWriteIdList=valid_write_ids,
                writeId=write_id,
            )
            try:
                self.call("alter_partitions_req", request)
            except MetastoreServerError as error:
                if len(chunk) == 1 or _SECOND_EVENT not in error.message:
                    raise
                self.alter_partitions(
                    database,
                    table,
                    chunk,
                    environment=environment,
                    valid_write_ids=valid_write_ids,
                    write_id=write_id,
                    batch_size=len(chunk) // 2,
                )

    def drop_partitions(
        self,
        database: str,
        table: str,
        names: Sequence[str],
        *,
        delete_data: bool,
        if_exists: bool = True,
        batch_size: int = PARTITIONS_PER_CALL,
    ) -> None:
        """Drop partitions by name.

        :param delete_data: delete a managed table's directories too.
        :param if_exists: ignore names that do not exist, even if no name of a batch exists.
        """
        for chunk in batches(names, batch_size):
            request = types.DropPartitionsRequest(
                dbName=database,
                tblName=table,
                parts=types.RequestPartsSpec(names=chunk),
                deleteData=delete_data,
                ifExists=if_exists,
                needResult=False,
                catName=self._catalog(),
            )
            try:
                self.call("drop_partitions_req", request)
            except NoSuchObjectError:
                if not if_exists:
                    raise


class _Seen:
    """The partitions that a stream has yielded, as digests of 16 bytes, needed if the stream breaks."""

    _BYTES = 16

    def __init__(self) -> None:
        self._digests = bytearray()
        self._found: frozenset[bytes] | None = None

    def add(self, partition: types.Partition) -> None:
        """Remember a partition; call it only before the first :meth:`has`."""
        self._digests += self._digest(partition)

    def has(self, partition: types.Partition) -> bool:
        """Return whether the stream has yielded a partition."""
        if self._found is None:
            places = range(0, len(self._digests), self._BYTES)
            self._found = frozenset(bytes(self._digests[at : at + self._BYTES]) for at in places)
        return bool(self._found) and self._digest(partition) in self._found

    def _digest(self, partition: types.Partition) -> bytes:
        return blake2b("\0".join(partition.values or ()).encode(), digest_size=self._BYTES).digest()


def _key_names(names: Sequence[str]) -> list[str]:
    return [unescape(part.partition("=")[0]) for part in names[0].split("/")]


def _write_id(partition: types.Partition) -> int:
    return -1 if partition.writeId is None else partition.writeId  # -1 is the IDL's default
