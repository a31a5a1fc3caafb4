"""Reads the constraints that Hive enforces when rows are written.

Hive checks enabled NOT NULL and CHECK constraints in every INSERT, UPDATE and MERGE
(``ConstraintExprGenerator``), of the table's columns, not of its partition keys. Its optimizer relies on NOT
NULL: it takes ``c IS NULL`` for false. Rows with a null would thus make Hive's answers wrong.
"""

from __future__ import annotations

from dataclasses import replace

from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.tables.write.plan import TableLayout, table_layout


def writable_layout(client: MetastoreClient, table: types.Table) -> TableLayout:
    """Return the layout of a table of the metastore, with the constraints that new rows must keep.

    :param client: client of the metastore that owns the table; one call reads the constraints.
    :raises ConfigurationError: see :func:`.plan.table_layout`.
    """
    layout = table_layout(table)
    return constrained(layout, client.get_table_constraints(layout.database, layout.table))


def constrained(layout: TableLayout, constraints: types.SQLAllTableConstraints) -> TableLayout:
    """Return a layout with the enabled constraints of its columns.

    A constraint with DISABLE is not enforced, whether or not it has RELY.
    """
    columns = {column.name for column in layout.columns}
    nulls = [rule for rule in constraints.notNullConstraints or () if rule.enable_cstr]
    names = dict.fromkeys(str(rule.column_name).lower() for rule in nulls)
    checks = [rule for rule in constraints.checkConstraints or () if rule.enable_cstr]
    return replace(
        layout,
        not_null=tuple(name for name in names if name in columns),
        checks=tuple(f"{rule.dc_name} ({rule.check_expression})" for rule in checks),
    )
