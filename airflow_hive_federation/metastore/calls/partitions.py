"""Partitions, in batches: a table may have a million."""

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

ALL = -1  # as max_parts, an i16: no limit, where a number could not exceed 32,767
PARTITIONS_A_CALL = 500
#: How many partitions a condition may hold for, for each one that is wanted.
_FEW_OTHERS = 2
#: What a metastore says whose listener writes a second event of one call (``ListenerEvent.putParameter``).
_SECOND_EVENT = "overwrite a read-only parameter: DB_NOTIFICATION_EVENT_ID_KEY_NAME"


class PartitionCalls(StatisticsCalls):
    """Partitions."""

    def list_partition_names(self, database: str, table: str) -> list[str]:
        """Return the names (``day=2026-01-01/hour=7``, escaped as Hive does) of all partitions of a table."""
        return cast("list[str]", self.call("get_partition_names", self._database_name(database), table, ALL))

    def iter_partitions(
        self,
        database: str,
        table: str,
        *,
        names: Sequence[str] | None = None,
        with_column_stats: bool = False,
        valid_write_ids: str | None = None,
        batch: int = PARTITIONS_A_CALL,
    ) -> Iterator[types.Partition]:
        """Yield partitions; names that do not exist (any more) are left out.

        :param names: which; ``None`` means all, which come in answers of bounded size.
        :param with_column_stats: fill ``colStats`` with each partition's column statistics.
        :param valid_write_ids: the table's valid write ids in Hive's text form, by which the server tells
            whether the statistics of an ACID table fit.
        :param batch: names a call.
        """
        if names is not None:
            yield from self._partitions_by_name(
                database,
                table,
                names,
                with_column_stats=with_column_stats,
                valid_write_ids=valid_write_ids,
                batch=batch,
            )
            return
        seen = _Seen()
        if not with_column_stats:
            try:
                query = partitions_query(self.settings.catalog, database, table)
                for one in self._streamed(PARTITIONS, types.Partition, query):
                    seen.add(one)
                    yield one
                return
            except NotStreamed as error:
                log.debug("partitions of %s.%s are read by calls: %s", database, table, error)
        for page in self.partition_pages(database, table, with_column_stats=with_column_stats):
            found = self.read_page(database, table, page)
            if with_column_stats:
                self._attach_column_stats(database, table, found, valid_write_ids)
            yield from (one for one in found if not seen.has(one))

    def partition_pages(
        self, database: str, table: str, *, with_column_stats: bool = False
    ) -> Iterator[Page]:
        """Divide a table's partitions into pages that take a bounded amount of memory each.

        :param with_column_stats: column statistics are read with them.
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
        """Read the partitions of a page; those that do not exist any more are left out."""
        if page.everything:
            found = self.get_partitions(database, table)
            return found or list(self._partitions_by_name(database, table, page.names))
        return self._page(database, table, _key_names(page.names), page)

    def _partitions_by_name(
        self,
        database: str,
        table: str,
        names: Sequence[str],
        *,
        with_column_stats: bool = False,
        valid_write_ids: str | None = None,
        batch: int = PARTITIONS_A_CALL,
    ) -> Iterator[types.Partition]:
        for some in batches(names, batch):
            request = types.GetPartitionsByNamesRequest(
                db_name=self._database_name(database),
                tbl_name=table,
                names=some,
                get_col_stats=with_column_stats,
                validWriteIdList=valid_write_ids,
                engine=ENGINE,
                **self._processor(),
            )
            yield from self.call("get_partitions_by_names_req", request).partitions

    def _page(self, database: str, table: str, keys: Sequence[str], page: Page) -> list[types.Partition]:
        """Read a page by its condition, and those that it does not hold for by name."""
        by_name: dict[str, types.Partition] = {}
        if page.condition:
            try:
                found = self.find_partitions(database, table, page.condition)
            except MetastoreServerError:
                # It does not understand the condition. Anything else comes up again when asked by name.
                found = []
            by_name = {partition_name(keys, one.values or []): one for one in found}
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
        """Read partitions of known names, thousands of them; names that do not exist (any more) are left out.

        Names that follow each other by a partition key are asked for by a range of it: by name, some
        databases compare each partition of the table with each name.

        :param with_column_stats: see :meth:`iter_partitions`.
        :param valid_write_ids: see :meth:`iter_partitions`.
        """
        found = self._of_names(database, table, names)
        if with_column_stats:
            self._attach_column_stats(database, table, found, valid_write_ids)
        return found

    def _of_names(self, database: str, table: str, names: Sequence[str]) -> list[types.Partition]:
        if len(names) <= PARTITIONS_A_CALL:
            return list(self._partitions_by_name(database, table, names))
        keys = [
            (key.name or "", key.type or "") for key in self.get_table(database, table).partitionKeys or ()
        ]
        found: list[types.Partition] = []
        for page in pages(keys, names, len(names)):
            if self._holds_few_others(database, table, page):
                found += self._page(database, table, [key for key, _ in keys], page)
            else:
                found += self._partitions_by_name(database, table, page.names, batch=len(page.names))
        return found

    def _holds_few_others(self, database: str, table: str, page: Page) -> bool:
        """Whether a page's condition holds for hardly more partitions than its own."""
        if not page.condition:
            return False
        try:
            held = self.call(
                "get_num_partitions_by_filter", self._database_name(database), table, page.condition
            )
        except MetastoreServerError:
            # It does not understand the condition. Anything else comes up again when asked by name.
            return False
        return bool(held <= _FEW_OTHERS * len(page.names))

    def find_partitions(self, database: str, table: str, where: str) -> list[types.Partition]:
        """Read the partitions that a condition on partition keys holds for, ``day >= '2026-01-01'``.

        :raises MetastoreServerError: if the metastore cannot read the condition.
        """
        found = self.call("get_partitions_by_filter", self._database_name(database), table, where, ALL)
        return cast("list[types.Partition]", found)

    def get_partitions(self, database: str, table: str) -> list[types.Partition]:
        """Read all partitions in one answer; empty if the server limits how many it gives at a time."""
        try:
            found = self.call("get_partitions", self._database_name(database), table, ALL)
        except MetastoreServerError:
            # metastore.limit.partition.request. Anything else comes up again when they are asked by name.
            return []
        return cast("list[types.Partition]", found)

    def _attach_column_stats(
        self, database: str, table: str, partitions: list[types.Partition], valid_write_ids: str | None
    ) -> None:
        described = self.get_table(database, table)
        keys = [key.name or "" for key in described.partitionKeys or []]
        columns = [column.name or "" for column in (described.sd and described.sd.cols) or []]
        by_name = {partition_name(keys, partition.values or []): partition for partition in partitions}
        for some in batches(by_name, PARTITIONS_A_CALL):
            answer = self._partitions_statistics(database, table, some, columns, valid_write_ids)
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
        batch: int = PARTITIONS_A_CALL,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Create partitions, ``batch`` a call, each call all or nothing.

        :param if_not_exists: leave those alone that exist.
        :raises AlreadyExistsError: if one exists and ``if_not_exists`` is not set.
        """
        for (database, table), group in groupby(partitions, lambda one: (one.dbName, one.tableName)):
            for some in batches(group, batch):
                request = types.AddPartitionsRequest(
                    dbName=database,
                    tblName=table,
                    parts=some,
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
        batch: int = PARTITIONS_A_CALL,
    ) -> None:
        """Replace the metadata of existing partitions, found by their values.

        A call has partitions of one write id only: of others, the metastore's listener would write a second
        event, and fail (``DbNotificationListener.onAlterPartitions``). Which one a partition has that comes
        without is for the metastore to know: where that differs, half of them are tried by themselves.
        """
        ordered = sorted(partitions, key=_write_id)
        runs = (run for _, run in groupby(ordered, _write_id))
        for some in (some for run in runs for some in batches(run, batch)):
            request = types.AlterPartitionsRequest(
                catName=self._catalog(),
                dbName=database,
                tableName=table,
                partitions=some,
                environmentContext=environment_context(environment),
                validWriteIdList=valid_write_ids,
                writeId=write_id,
            )
            try:
                self.call("alter_partitions_req", request)
            except MetastoreServerError as error:
                if len(some) == 1 or _SECOND_EVENT not in error.message:
                    raise
                self.alter_partitions(
                    database,
                    table,
                    some,
                    environment=environment,
                    valid_write_ids=valid_write_ids,
                    write_id=write_id,
                    batch=len(some) // 2,
                )

    def drop_partitions(
        self,
        database: str,
        table: str,
        names: Sequence[str],
        *,
        delete_data: bool,
        if_exists: bool = True,
        batch: int = PARTITIONS_A_CALL,
    ) -> None:
        """Drop partitions by name.

        :param delete_data: delete a managed table's directories too.
        :param if_exists: leave out the names that do not exist; a batch none of whose names exist is fine.
        """
        for some in batches(names, batch):
            request = types.DropPartitionsRequest(
                dbName=database,
                tblName=table,
                parts=types.RequestPartsSpec(names=some),
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
    """Partitions of a stream so far, for the case that it breaks: sixteen bytes each."""

    _BYTES = 16

    def __init__(self) -> None:
        self._digests = bytearray()
        self._found: frozenset[bytes] | None = None

    def add(self, partition: types.Partition) -> None:
        """Remember a partition; not after one was looked for."""
        self._digests += self._digest(partition)

    def has(self, partition: types.Partition) -> bool:
        """Whether a partition is one of them."""
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
