"""The operations of random histories, each on the objects that a history has."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from airflow_hive_federation.compaction.plan import CompactionKind
from airflow_hive_federation.transactions.locks import TableWrite, WriteKind
from airflow_hive_federation.transactions.transaction import Transaction
from tests.support.histories import (
    ACID,
    ARROW,
    PARTITIONS,
    WORDS,
    History,
    Kind,
    NotNow,
    Operation,
    Table,
    unescaped,
)
from tests.support.history_files import delete_rows, prepare_partitions


def insert_by_files(history: History) -> str:
    return history._finish(history.begin())


def begin_transaction(history: History) -> str:
    if len(history._open) > 2:
        raise NotNow
    write = history.begin()
    return f"{write.transaction.id} {', '.join(table.full_name for table in write.tables)}"


def end_transaction(history: History) -> str:
    if not history._open:
        raise NotNow
    return history._finish(history.chance.choice(history._open))


def delete_by_files(history: History) -> str:
    table = history.pick(Kind.ACID)
    if not table.rows:
        raise NotNow
    history.free(table)
    value, written, number = table.rows.pop(history.chance.randrange(len(table.rows)))
    if table.partitioned and value not in map(
        unescaped, history.client.list_partition_names(table.database, table.name)
    ):
        raise NotNow
    schema = pa.schema([(name, ARROW[kind]) for name, kind in table.columns.items()])
    with Transaction(history.client, shared_writes=history.shared_writes) as transaction:
        transaction.lock([TableWrite(database=table.database, table=table.name, kind=WriteKind.DELETE)])
        write_id = transaction.write_id(table.database, table.name)
        (place,) = prepare_partitions(
            history.client, transaction, table.database, table.name, [value]
        ).values()
        delete_rows(place, write_id, (written, number), schema, bucket=history.bucket)
    return f"{table.full_name} {value} {written} {number}"


def stream(history: History) -> str:
    if history._streams and (len(history._streams) > 1 or history.chance.random() < 0.7):
        stream = history.chance.choice(history._streams)
        if history.chance.random() < 0.15:
            history._close(stream)
            return stream.table.full_name
    else:
        stream = history._stream(history.pick(Kind.ACID))
    return history.streamed(stream)


def insert(history: History) -> str:
    table = history.pick()
    history.sql(f"INSERT INTO {table.full_name} VALUES {history.literals(table)}")
    return table.full_name


def update(history: History) -> str:
    table = history.pick(Kind.ACID, free=True)
    part = history.chance.randrange(3)
    history.sql(f"UPDATE {table.full_name} SET s = '{history.chance.choice(WORDS)}' WHERE id % 3 = {part}")
    return table.full_name


def delete(history: History) -> str:
    table = history.pick(Kind.ACID, free=True)
    history.sql(f"DELETE FROM {table.full_name} WHERE id % 5 = {history.chance.randrange(5)}")
    return table.full_name


def merge(history: History) -> str:
    table, other = history.pick(Kind.ACID, free=True), history.pick(Kind.ACID)
    if table is other or list(table.columns)[:3] != ["id", "s", "n"] or "s" not in other.columns:
        raise NotNow
    values = ", ".join(["o.id", "o.s", *["null"] * (len(table.columns) - 2), *["'x'"] * table.partitioned])
    history.sql(
        f"MERGE INTO {table.full_name} t USING (SELECT id, min(s) s FROM {other.full_name} GROUP BY id) o "
        "ON t.id = o.id WHEN MATCHED AND t.id % 4 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET s = 'merged' "
        f"WHEN NOT MATCHED THEN INSERT VALUES ({values})"
    )
    return table.full_name


def overwrite(history: History) -> str:
    table = history.pick(free=True)
    where = f"id % 2 = {history.chance.randrange(2)}"
    columns = ", ".join(f"`{name}`" for name in table.columns)
    partition = ""
    if table.partitioned and history.chance.random() < 0.5:
        value = history.partition(table)
        partition, where = f" PARTITION (p = '{value}')", f"{where} AND p = '{value}'"
    elif table.partitioned:
        partition, columns = " PARTITION (p)", f"{columns}, p"
    history.sql(
        f"INSERT OVERWRITE TABLE {table.full_name}{partition} "
        f"SELECT {columns} FROM {table.full_name} WHERE {where}"
    )
    return table.full_name


def insert_into_two(history: History) -> str:
    tables = [table for table in history.tables if table.kind is Kind.ACID and not table.partitioned]
    if len(tables) < 2:
        raise NotNow
    first, other = history.chance.sample(tables, 2)
    history.free(first)
    history.free(other)
    selects = [
        f"INSERT INTO {table.full_name} SELECT {', '.join(['id', *['null'] * (len(table.columns) - 1)])}"
        for table in (first, other)
    ]
    history.sql(f"FROM (SELECT {next(history._numbers)} id) q {' '.join(selects)}")
    return f"{first.full_name} {other.full_name}"


def truncate(history: History) -> str:
    table = history.pick(Kind.ACID, Kind.INSERT_ONLY, free=True)
    partition = ""
    if table.partitioned and history.chance.random() < 0.6:
        partition = f" PARTITION (p = '{history.partition(table)}')"
    history.sql(f"TRUNCATE TABLE {table.full_name}{partition}")
    return table.full_name


def add_column(history: History) -> str:
    table = history.pick(free=True)
    name, kind = history.new_name().replace("t", "c"), history.chance.choice(("int", "string", "double"))
    cascade = " CASCADE" if table.partitioned and history.chance.random() < 0.5 else ""
    if len(table.columns) < 7 and history.sql(
        f"ALTER TABLE {table.full_name} ADD COLUMNS ({name} {kind}){cascade}"
    ):
        table.columns[name] = kind
    return table.full_name


def change_column(history: History) -> str:
    table = history.pick(free=True)
    name = history.chance.choice([column for column in table.columns if column not in {"id", "s"}] or ["n"])
    if name not in table.columns:
        raise NotNow
    kind = {"int": "bigint"}.get(table.columns[name], table.columns[name])
    new = name if history.chance.random() < 0.5 else history.new_name().replace("t", "c")
    cascade = " CASCADE" if table.partitioned else ""
    if history.sql(f"ALTER TABLE {table.full_name} CHANGE COLUMN `{name}` `{new}` {kind}{cascade}"):
        table.columns = {
            (new if column == name else column): (kind if column == name else old)
            for column, old in table.columns.items()
        }
    return table.full_name


def replace_columns(history: History) -> str:
    table = history.pick(Kind.EXTERNAL)
    columns = {"id": "int", "s": "string", history.new_name().replace("t", "c"): "int"}
    text = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    if history.sql(f"ALTER TABLE {table.full_name} REPLACE COLUMNS ({text})"):
        table.columns = columns
    return table.full_name


def rename(history: History) -> str:
    table = history.pick(free=True)
    database = history.chance.choice((table.database, *history.databases))
    new = f"{database}.{history.new_name()}"
    if not history.may_rename(table):
        raise NotNow
    if history.sql(f"ALTER TABLE {table.full_name} RENAME TO {new}"):
        table.database, _, table.name = new.partition(".")
    return new


def swap_names(history: History) -> str:
    """Replace a table as a deployment does: the new one takes the old one's name."""
    old = history.pick(Kind.ACID, free=True)
    new = Table(old.database, history.new_name(), old.kind, dict(old.columns), old.partitioned, old.buckets)
    if not history.may_rename(old):
        raise NotNow
    backup = history.new_name()
    history.sql(f"CREATE {history.definition(new)}")
    history.sql(f"INSERT INTO {new.full_name} VALUES {history.literals(new)}")
    history.sql(f"ALTER TABLE {old.full_name} RENAME TO {old.database}.{backup}")
    history.sql(f"ALTER TABLE {new.full_name} RENAME TO {old.full_name}")
    history.tables.append(new)
    old.name, new.name = backup, old.name
    return new.full_name


def exchange_names(history: History) -> str:
    """Give two tables of a database each other's names."""
    one = history.pick(free=True)
    others = [table for table in history.tables if table.database == one.database and table is not one]
    if not others:
        raise NotNow
    other = history.chance.choice(others)
    if not (history.may_rename(one) and history.may_rename(other)):
        raise NotNow
    history.free(other)
    between = f"{one.database}.{history.new_name()}"
    names = one.full_name, other.full_name
    if history.sql(f"ALTER TABLE {names[0]} RENAME TO {between}"):
        history.sql(f"ALTER TABLE {names[1]} RENAME TO {names[0]}")
        history.sql(f"ALTER TABLE {between} RENAME TO {names[1]}")
        one.name, other.name = other.name, one.name
    return " ".join(names)


def set_location(history: History) -> str:
    """Give a transactional table or partition another directory: an empty, a former or a renamed one."""
    table = history.pick(Kind.ACID, Kind.INSERT_ONLY, free=True)
    value = history.partition(table) if table.partitioned else ""
    clause = f" PARTITION (p = '{value}')" if table.partitioned else ""
    here, left = history.place(table, value), history.left.setdefault((table, value), [])
    new = history.elsewhere(table.database)
    moves = history.has_aborted(table, here) or history.chance.random() < 0.3
    if moves and here.exists():
        here.rename(new)
    elif left and history.chance.random() < 0.5:
        new = left.pop(history.chance.randrange(len(left)))
    else:
        new.mkdir()
    if not history.sql(f"ALTER TABLE {table.full_name}{clause} SET LOCATION 'file:{new}'"):
        if not here.exists():
            new.rename(here)
        return table.full_name
    if here.exists():
        # Out of the way of a table that gets its name.
        left.append(here.rename(history.elsewhere(table.database)))
    return table.full_name


def update_partition_value(history: History) -> str:
    """Try to move rows to another partition, which Hive refuses."""
    table = history.pick(Kind.ACID, partitioned=True, free=True)
    assert not history.sql(f"UPDATE {table.full_name} SET p = '{history.chance.choice(PARTITIONS)}'")
    history.refused.pop()
    return table.full_name


def pass_partition_name(history: History) -> str:
    """Give a partition the name of one that is dropped."""
    table = history.pick(Kind.ACID, Kind.INSERT_ONLY, partitioned=True, free=True)
    gone, other = history.partition(table), history.partition(table)
    if gone == other:
        raise NotNow
    history.drop_partition(table, gone)
    history.rename_partition(table, other, gone)
    return table.full_name


def rename_partition(history: History) -> str:
    table = history.pick(partitioned=True, free=True)
    history.rename_partition(table, history.partition(table), history.new_name())
    return table.full_name


def set_property(history: History) -> str:
    table = history.pick(free=True)
    key = history.chance.choice(("a", "b", "comment"))
    if history.chance.random() < 0.3:
        history.sql(f"ALTER TABLE {table.full_name} UNSET TBLPROPERTIES IF EXISTS ('{key}')")
    else:
        history.sql(f"ALTER TABLE {table.full_name} SET TBLPROPERTIES ('{key}' = '{next(history._numbers)}')")
    return table.full_name


def set_database_property(history: History) -> str:
    database = history.chance.choice(history.databases)
    history.sql(f"ALTER DATABASE {database} SET DBPROPERTIES ('a' = '{next(history._numbers)}')")
    return database


def add_partition(history: History) -> str:
    table = history.pick(partitioned=True, free=True)
    value = history.new_name()
    elsewhere = ""
    if table.kind is Kind.EXTERNAL and history.chance.random() < 0.5:
        place = history._external / f"{history.databases[0]}_files" / f"elsewhere_{value}"
        place.mkdir(parents=True)
        (place / "data").write_text(f"{next(history._numbers)},elsewhere,1\n", encoding="utf-8")
        elsewhere = f" LOCATION 'file:{place}'"
    history.sql(f"ALTER TABLE {table.full_name} ADD PARTITION (p = '{value}'){elsewhere}")
    return table.full_name


def drop_partition(history: History) -> str:
    table = history.pick(partitioned=True, free=True)
    history.drop_partition(table, history.partition(table))
    return table.full_name


def exchange_partition(history: History) -> str:
    table = history.pick(Kind.EXTERNAL, partitioned=True, free=True)
    other = f"{table.database}.{history.new_name()}"
    value = history.new_name()
    place = history._external / f"{history.databases[0]}_files" / value
    history.sql(f"CREATE EXTERNAL TABLE {other} LIKE {table.full_name} LOCATION 'file:{place}'")
    history.sql(
        f"INSERT INTO {other} PARTITION (p = '{value}') VALUES {history.literals(table, partition=False)}"
    )
    history.sql(f"ALTER TABLE {table.full_name} EXCHANGE PARTITION (p = '{value}') WITH TABLE {other}")
    history.sql(f"DROP TABLE {other}")
    return table.full_name


def create(history: History) -> str:
    if len(history.tables) > 11:
        raise NotNow
    kind = history.chance.choice((Kind.ACID, Kind.ACID, Kind.INSERT_ONLY, Kind.EXTERNAL))
    return history._create(
        history.chance.choice(history.databases),
        kind,
        partitioned=history.chance.random() < 0.5,
        buckets=history.chance.choice((0, 0, 2, 3)),
    )


def create_as_select(history: History) -> str:
    if len(history.tables) > 11:
        raise NotNow
    table = history.pick(free=True)
    new = Table(table.database, history.new_name(), Kind.ACID, {"id": "int", "s": "string"})
    if history.sql(
        f"CREATE TABLE {new.full_name} STORED AS ORC TBLPROPERTIES ({ACID}) "
        f"AS SELECT id, s FROM {table.full_name}"
    ):
        history.tables.append(new)
    return new.full_name


def drop(history: History) -> str:
    table = history.pick()
    if len(history.tables) < 7 or any(view is table for view in history.views.values()):
        raise NotNow
    history.free(table)
    if history.sql(f"DROP TABLE {table.full_name}"):
        history.tables.remove(table)
    return table.full_name


def create_again(history: History) -> str:
    """Another table under the same name."""
    table = history.pick(free=True)
    if any(view is table for view in history.views.values()):
        raise NotNow
    history.sql(f"DROP TABLE {table.full_name}")
    table.kind = history.chance.choice((Kind.ACID, Kind.INSERT_ONLY))
    table.partitioned = history.chance.random() < 0.5
    table.buckets, table.rows = 0, []
    history.forget_places(table)
    table.columns = {"id": "int", "s": "string", "n": "int"}
    history.sql(f"CREATE {history.definition(table)}")
    return table.full_name


def view(history: History) -> str:
    if len(history.views) > 2 or (history.views and history.chance.random() < 0.3):
        name = history.chance.choice(sorted(history.views))
        history.sql(f"DROP VIEW {name}")
        del history.views[name]
        return name
    table = history.pick()
    name = f"{table.database}.v{next(history._numbers)}"
    history.sql(f"CREATE VIEW {name} AS SELECT id, s FROM {table.full_name}")
    history.views[name] = table
    return name


def analyze(history: History) -> str:
    table = history.pick(Kind.ACID, Kind.INSERT_ONLY, free=True)
    columns = history.chance.choice(("", " FOR COLUMNS"))
    history.sql(f"ANALYZE TABLE {table.full_name} COMPUTE STATISTICS{columns}")
    return table.full_name


def compact(history: History) -> str:
    table = history.pick(Kind.ACID, Kind.INSERT_ONLY)
    kind = history.chance.choice((CompactionKind.MAJOR, CompactionKind.MINOR))
    return f"{table.full_name} {kind}: {', '.join(history.compact(table, kind))}"


def write_external(history: History) -> str:
    table = history.pick(Kind.EXTERNAL)
    places = history.files(table)
    if not places:
        raise NotNow
    place = history.chance.choice(places)
    place.mkdir(parents=True, exist_ok=True)
    files = sorted(path for path in place.iterdir() if path.is_file() and not path.name.startswith("."))
    number = 10_000 + next(history._numbers)
    if files and history.chance.random() < 0.6:
        file = history.chance.choice(files)
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
        # Of a directory that is empty then, nobody knows whether its store is mounted: the cycle would stop.
        if history.chance.random() < 0.4 and len(files) > 1:
            file.unlink()
            return f"{file} removed"
    else:
        file = place / f"f{number}"
    # Five digits: the same length as before, if it was written so.
    file.write_text(f"{number},written,1\n", encoding="utf-8")
    return str(file)


OPERATIONS: Mapping[Operation, int] = {
    insert_by_files: 14,
    begin_transaction: 6,
    end_transaction: 5,
    delete_by_files: 6,
    stream: 10,
    insert: 4,
    update: 3,
    delete: 2,
    merge: 2,
    overwrite: 2,
    insert_into_two: 1,
    truncate: 2,
    add_column: 2,
    change_column: 2,
    replace_columns: 1,
    rename: 3,
    swap_names: 1,
    rename_partition: 3,
    set_property: 3,
    set_database_property: 1,
    add_partition: 3,
    drop_partition: 3,
    exchange_partition: 1,
    create: 3,
    create_as_select: 1,
    drop: 2,
    create_again: 2,
    view: 2,
    analyze: 2,
    compact: 4,
    write_external: 5,
}
#: ``make torture`` has these, too; the suite's histories would become longer.
MORE_OPERATIONS: Mapping[Operation, int] = {
    **OPERATIONS,
    exchange_names: 1,
    set_location: 2,
    pass_partition_name: 1,
    update_partition_value: 1,
}
#: These change what the names that a dump lists stand for.
EXCHANGES: Mapping[Operation, int] = {
    create_again: 3,
    exchange_names: 3,
    swap_names: 3,
    rename: 2,
    rename_partition: 2,
    pass_partition_name: 4,
    set_location: 3,
    exchange_partition: 1,
    drop_partition: 2,
    drop: 1,
    overwrite: 1,
    truncate: 1,
    add_column: 1,
    compact: 1,
    insert_by_files: 1,
    stream: 1,
}
