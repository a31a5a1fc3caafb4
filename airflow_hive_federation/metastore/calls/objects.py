"""Makes the metastore's calls for databases, tables, constraints and functions."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from airflow_hive_federation.errors import NoSuchObjectError
from airflow_hive_federation.metastore.calls.base import ENGINE, Calls, batches, environment_context
from airflow_hive_federation.metastore.grpc_streams import TABLES, NotStreamed, tables_query
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.settings import CAPABILITIES

log = logging.getLogger(__name__)

TABLES_PER_CALL = 100


class ObjectCalls(Calls):
    """Calls for databases, tables, constraints and functions."""

    def get_database(self, name: str, *, catalog: str | None = None) -> types.Database:
        """Read a database.

        :raises NoSuchObjectError: if no database has that name.
        """
        request = types.GetDatabaseRequest(name=name, catalogName=self._catalog(catalog), **self._processor())
        return cast("types.Database", self.call("get_database_req", request))

    def list_databases(self, pattern: str = "*") -> list[str]:
        """Return the names of the databases that match ``pattern`` (``*`` is any text, ``|`` is or)."""
        return cast("list[str]", self.call("get_databases", self._database_name(pattern)))

    def create_database(self, database: types.Database) -> None:
        """Create a database.

        :raises AlreadyExistsError: if the name is taken.
        """
        self.call("create_database", database)

    def alter_database(self, name: str, database: types.Database) -> None:
        """Replace a database's description, owner, parameters and locations by those of ``database``."""
        self.call("alter_database", self._database_name(name), database)

    def drop_database(
        self, name: str, *, delete_data: bool, cascade: bool = False, if_exists: bool = False
    ) -> None:
        """Drop a database.

        :param delete_data: delete the directories too.
        :param cascade: drop its tables and functions with it.
        :param if_exists: do nothing if the database does not exist.
        :raises InvalidOperationError: if it is not empty and ``cascade`` is not set.
        """
        request = types.DropDatabaseRequest(
            name=name,
            catalogName=self._catalog(),
            ignoreUnknownDb=if_exists,
            deleteData=delete_data,
            cascade=cascade,
        )
        try:
            self.call("drop_database_req", request)
        except NoSuchObjectError:
            if not if_exists:
                raise

    def list_tables(self, database: str, *, pattern: str = "*", kind: str | None = None) -> list[str]:
        """Return the names of a database's tables; the list is empty if the database does not exist.

        The names of all tables come from ``get_all_tables``: for a pattern, Hive 4 reads each table whose
        name matches (``HMSHandler.get_tables``), which beyond a thousand ends in a ``StackOverflowError``.

        :param kind: a Hive table type, ``MANAGED_TABLE``, ``EXTERNAL_TABLE``, ``VIRTUAL_VIEW``, …
        """
        if kind is None and pattern == "*":
            return cast("list[str]", self.call("get_all_tables", self._database_name(database)))
        if kind is None:
            return cast("list[str]", self.call("get_tables", self._database_name(database), pattern))
        return cast(
            "list[str]", self.call("get_tables_by_type", self._database_name(database), pattern, kind)
        )

    def get_table(
        self,
        database: str,
        table: str,
        *,
        with_column_stats: bool = False,
        valid_write_ids: str | None = None,
    ) -> types.Table:
        """Read a table or view.

        :param with_column_stats: fill ``colStats`` with the table's column statistics.
        :param valid_write_ids: the table's valid write ids in Hive's text form; for an ACID table the server
            sets ``isStatsCompliant`` if the statistics are valid for them.
        :raises NoSuchObjectError: if no table has that name.
        """
        request = types.GetTableRequest(
            dbName=database,
            tblName=table,
            catName=self._catalog(),
            getColumnStats=with_column_stats,
            engine=ENGINE,
            validWriteIdList=valid_write_ids,
            capabilities=types.ClientCapabilities(values=[types.ClientCapability.INSERT_ONLY_TABLES]),
            **self._processor(),
        )
        return cast("types.Table", self.call("get_table_req", request).table)

    def get_tables(self, database: str, names: Sequence[str]) -> list[types.Table]:
        """Read many tables, a hundred per call; tables that do not exist are left out."""
        return list(self.iter_tables(database, names))

    def iter_tables(self, database: str, names: Sequence[str] | None = None) -> Iterator[types.Table]:
        """Yield tables, a hundred per call or from a gateway's stream; tables that do not exist are left out.

        :param names: names of the tables to read; ``None`` reads all.
        """
        seen: set[str] = set()
        # A gateway always reads its stream with our default capabilities.
        if (names is None or len(names) > TABLES_PER_CALL) and self.settings.capabilities == CAPABILITIES:
            try:
                query = tables_query(self.settings.catalog, database, names or ())
                for table in self._streamed(TABLES, types.Table, query):
                    seen.add(table.tableName or "")
                    yield table
                return
            except NotStreamed as error:
                log.debug("tables of %s are read by calls: %s", database, error)
        remaining = self.list_tables(database) if names is None else names
        for batch in batches((name for name in remaining if name.lower() not in seen), TABLES_PER_CALL):
            request = types.GetTablesRequest(
                dbName=database,
                tblNames=batch,
                catName=self._catalog(),
                capabilities=types.ClientCapabilities(values=[types.ClientCapability.INSERT_ONLY_TABLES]),
                **self._processor(),
            )
            yield from self.call("get_table_objects_by_name_req", request).tables

    def create_table(
        self,
        table: types.Table,
        *,
        constraints: types.SQLAllTableConstraints | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Create a table or view together with its constraints.

        :raises AlreadyExistsError: if the name is taken.
        :raises NoSuchObjectError: if the database does not exist.
        :raises InvalidObjectError: if the server rejects the table's definition.
        """
        rules = constraints or types.SQLAllTableConstraints()
        request = types.CreateTableRequest(
            table=table,
            envContext=environment_context(environment),
            primaryKeys=rules.primaryKeys,
            foreignKeys=rules.foreignKeys,
            uniqueConstraints=rules.uniqueConstraints,
            notNullConstraints=rules.notNullConstraints,
            defaultConstraints=rules.defaultConstraints,
            checkConstraints=rules.checkConstraints,
            **self._processor(),
        )
        self.call("create_table_req", request)

    def alter_table(
        self,
        database: str,
        name: str,
        new_table: types.Table,
        *,
        environment: Mapping[str, str] | None = None,
        valid_write_ids: str | None = None,
        write_id: int | None = None,
        expected_parameter: tuple[str, str] | None = None,
    ) -> None:
        """Replace a table's metadata; a new name in ``new_table`` renames it.

        :param valid_write_ids: valid write ids (Hive's text form) on which the change to an ACID table is
            based.
        :param write_id: the write id of the change, for an ACID table whose statistics change with it.
        :param expected_parameter: a parameter and the value it must still have; otherwise nothing is changed
            (compare and swap). The new table must have the parameter too. A call cannot require that a
            parameter does not exist: Hive's HiveAlterHandler ignores a key without a value.
        :raises MetastoreServerError: "has been modified", if the expected parameter has another value.
        :raises InvalidOperationError: if the table does not exist.
        """
        key, value = expected_parameter or (None, None)
        request = types.AlterTableRequest(
            catName=self._catalog(),
            dbName=database,
            tableName=name,
            table=new_table,
            environmentContext=environment_context(environment),
            validWriteIdList=valid_write_ids,
            writeId=write_id,
            expectedParameterKey=key,
            expectedParameterValue=value,
            **self._processor(),
        )
        self.call("alter_table_req", request)

    def drop_table(self, database: str, name: str, *, delete_data: bool, if_exists: bool = False) -> None:
        """Drop a table or view.

        :param delete_data: delete a managed table's directory too.
        :param if_exists: do nothing if the table does not exist.
        """
        request = types.DropTableRequest(
            catalogName=self._catalog(),
            dbName=database,
            tableName=name,
            deleteData=delete_data,
            # Hive takes an unset value for false, and then refuses to drop a table that has partitions.
            dropPartitions=True,
        )
        try:
            self.call("drop_table_req", request)
        except NoSuchObjectError:
            if not if_exists:
                raise

    def get_table_constraints(self, database: str, table: str) -> types.SQLAllTableConstraints:
        """Read all constraints of a table: its own foreign keys, not those that refer to the table."""
        request = types.AllTableConstraintsRequest(dbName=database, tblName=table, catName=self._catalog())
        answer = self.call("get_all_table_constraints", request)
        return cast("types.SQLAllTableConstraints", answer.allTableConstraints)

    def get_functions(self, database: str) -> list[types.Function]:
        """Read the permanent functions of a database."""
        request = types.GetFunctionsRequest(
            dbName=database, catalogName=self._catalog(), pattern="*", returnNames=False
        )
        return self.call("get_functions_req", request).functions or []

    def create_function(self, function: types.Function) -> None:
        """Create a permanent function.

        :raises AlreadyExistsError: if the name is taken.
        """
        self.call("create_function", function)

    def drop_function(self, database: str, name: str, *, if_exists: bool = False) -> None:
        """Drop a permanent function."""
        try:
            self.call("drop_function", self._database_name(database), name)
        except NoSuchObjectError:
            if not if_exists:
                raise
