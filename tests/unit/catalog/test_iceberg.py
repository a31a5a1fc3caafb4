"""Iceberg tables written by pyiceberg, by path and by catalog."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_hive_federation.catalog.iceberg import newest_metadata
from airflow_hive_federation.catalog.open import Catalogs
from airflow_hive_federation.errors import ConfigurationError, InvalidObjectError, NoSuchObjectError
from airflow_hive_federation.remotes import definitions

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


@pytest.fixture
def properties(tmp_path: Path) -> dict[str, str]:
    return {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/warehouse",
    }


@pytest.fixture
def table(properties: dict[str, str]) -> Any:
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("theirs", **properties)
    catalog.create_namespace("sales")
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "Name": ["a", "b"], "tags": [["x"], []]})
    made = catalog.create_table("sales.orders", schema=rows.schema)
    made.append(rows)
    yield made
    catalog.close()


def test_by_path(table: Any) -> None:
    with Catalogs() as catalogs:
        catalog, _ = catalogs.open(
            "xxx.yyy.iceberg.hive.zzz.IcebergTableHiveClientFactory",
            {"iceberg.table.path": table.location()},
            remote="r",
        )
        definition: Any = catalog.get_table("any", "name")
        assert (definition.dbName, definition.tableName, definition.tableType) == (
            "any",
            "name",
            "EXTERNAL_TABLE",
        )
        assert [(column.name, column.type) for column in definition.sd.cols] == [
            ("id", "bigint"),
            ("name", "string"),
            ("tags", "array<string>"),
        ]
        assert definition.parameters["metadata_location"] == table.metadata_location
        assert definitions.why_not(definition) is None
        before = definitions.digest(made_of(definition), definition)
        table.append(pa.table({"id": pa.array([3], pa.int64()), "Name": ["c"], "tags": [["y"]]}))
        newer = catalog.get_table("any", "name")
        assert (newer.parameters or {})["metadata_location"] == table.metadata_location
        assert definitions.digest(made_of(newer), newer) != before
        with pytest.raises(NoSuchObjectError):
            catalog.get_database("any")


def made_of(table: Any) -> Any:
    return definitions.local_table(table, database="l", name="n", owner="ada", link={})


def test_by_catalog(table: Any, properties: dict[str, str]) -> None:
    given = {f"iceberg.catalog.{name}": value for name, value in {**properties, "name": "theirs"}.items()}
    with Catalogs() as catalogs:
        catalog, _ = catalogs.open("iceberg", given, remote="r")
        assert catalog.get_database("sales").name == "sales"
        assert catalog.list_tables("sales") == ["orders"]
        (read,) = catalog.get_tables("sales", ["orders", "none"])
        assert (read.parameters or {})["metadata_location"] == table.metadata_location
        for missing in (("sales", "none"), ("nothing", "orders")):
            with pytest.raises(NoSuchObjectError):
                catalog.get_table(*missing)
        for ask in (catalog.get_database, catalog.list_tables):
            with pytest.raises(NoSuchObjectError, match="namespace nothing"):
                ask("nothing")


def test_connections_to_the_database_of_a_catalog_end_with_it(
    table: Any, properties: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    given = {f"iceberg.catalog.{name}": value for name, value in {**properties, "name": "theirs"}.items()}
    ended: list[str] = []
    with monkeypatch.context() as patched, Catalogs() as catalogs:
        close = SqlCatalog.close
        patched.setattr(SqlCatalog, "close", lambda catalog: (ended.append(catalog.name), close(catalog)))
        catalog, _ = catalogs.open("iceberg", given, remote="r")
        assert catalog.list_tables("sales") == ["orders"]
        catalogs.close()
    assert ended == ["theirs"]


def test_columns_that_are_one_to_hive(properties: dict[str, str]) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    theirs = SqlCatalog("theirs", **properties)
    theirs.create_namespace("d")
    theirs.create_table("d.t", schema=pa.schema([("id", pa.int64()), ("ID", pa.int64())]))
    given = {f"iceberg.catalog.{name}": value for name, value in {**properties, "name": "theirs"}.items()}
    with Catalogs() as catalogs:
        catalog, _ = catalogs.open("iceberg", given, remote="r")
        reason = definitions.why_not(catalog.get_table("d", "t"))
    assert reason == "its columns id and ID differ only in case, which Hive ignores"
    theirs.close()


def test_one_table_of_types_that_hive_lacks(properties: dict[str, str]) -> None:
    """It is left out of its database, and does not end the reading of the others."""
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.schema import Schema
    from pyiceberg.types import IntegerType, ListType, NestedField, StructType, TimestampType

    nanoseconds = NestedField(2, "at", TimestampType(), required=False)
    nested = StructType(NestedField(4, "at", TimestampType()), NestedField(5, "n", IntegerType()))
    theirs = SqlCatalog("theirs", **properties)
    theirs.create_namespace("d")
    for name, field in (
        ("fine", NestedField(1, "id", IntegerType(), required=False)),
        ("precise", nanoseconds),
        ("nested", NestedField(1, "List", ListType(3, nested), required=False)),
    ):
        made = theirs.create_table(f"d.{name}", Schema(field))
        # pyiceberg reads version 3, and does not write it.
        metadata = Path(made.metadata_location.removeprefix("file://"))
        written = metadata.read_text(encoding="utf-8").replace('"timestamp"', '"timestamp_ns"')
        written = written.replace('"format-version":2', '"format-version":3,"next-row-id":0')
        assert '"format-version":3' in written
        metadata.write_text(written, encoding="utf-8")
    given = {f"iceberg.catalog.{name}": value for name, value in {**properties, "name": "theirs"}.items()}
    with Catalogs() as catalogs:
        catalog, _ = catalogs.open("iceberg", given, remote="r")
        read = catalog.get_tables("d", ["fine", "precise", "nested"])
    assert [definitions.why_not(table) for table in read] == [
        None,
        "its column at is of type timestamp_ns, which Hive lacks",
        "its column list is of type timestamp_ns, which Hive lacks",
    ]
    theirs.close()


def test_tables_whose_metadata_cannot_be_read(properties: dict[str, str]) -> None:
    """They end no reading of the others, and no refresh of their remote database."""
    from pyiceberg.catalog.sql import SqlCatalog

    theirs = SqlCatalog("theirs", **properties)
    theirs.create_namespace("d")
    damage: dict[str, Callable[[bytes], bytes | None]] = {
        "fine": lambda written: written,
        "later": lambda written: written.replace(b'"format-version":2', b'"format-version":99'),
        "foreign": lambda written: written.replace(b'"type":"long"', b'"type":"secret-type"'),
        "cut": lambda written: written[:40],
        "binary": lambda _written: b"\xff\xfe{}",
        "missing": lambda _written: None,
    }
    for name, change in damage.items():
        made = theirs.create_table(f"d.{name}", schema=pa.schema([("id", pa.int64())]))
        metadata = Path(made.metadata_location.removeprefix("file://"))
        changed = change(metadata.read_bytes())
        if changed is None:
            metadata.unlink()
        else:
            metadata.write_bytes(changed)
    given = {f"iceberg.catalog.{name}": value for name, value in {**properties, "name": "theirs"}.items()}
    with Catalogs() as catalogs:
        catalog, _ = catalogs.open("iceberg", given, remote="r")
        read = catalog.get_tables("d", [*damage, "dropped"])
        reasons = {table.tableName: str(definitions.why_not(table)) for table in read}
        for name in damage.keys() - {"fine"}:
            with pytest.raises(InvalidObjectError, match=rf"Iceberg, d\.{name}: .*metadata"):
                catalog.get_table("d", name)
    assert list(reasons) == [*damage]
    assert reasons["fine"] == "None"
    assert reasons["missing"] == (
        "its metadata file is missing; restore the file, or drop the table at its catalog"
    )
    for name in ("later", "foreign", "cut", "binary"):
        assert reasons[name].startswith("pyiceberg cannot read its metadata (")
        assert reasons[name].endswith("); upgrade pyiceberg, or mend the table at its catalog")
    theirs.close()


def test_names_of_any_case_and_depth(properties: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    theirs = SqlCatalog("theirs", **properties)
    schema = pa.schema([("id", pa.int64())])
    for namespace, name in (("Sales", "Orders"), ("Sales", "returns"), ("Sales.EU", "Taxes")):
        theirs.create_namespace_if_not_exists(namespace)
        theirs.create_table(f"{namespace}.{name}", schema=schema)
    given = {f"iceberg.catalog.{name}": value for name, value in {**properties, "name": "theirs"}.items()}
    with Catalogs() as catalogs:
        catalog, _ = catalogs.open("iceberg", given, remote="r")
        assert catalog.list_tables("sales") == ["orders", "returns"]
        assert "Sales.EU" in caplog.text
        assert [table.tableName for table in catalog.get_tables("sales", ["orders", "returns"])] == [
            "orders",
            "returns",
        ]
        assert catalog.get_table("sales", "orders").tableName == "orders"
        assert catalog.get_database("sales").name == "sales"
        assert catalog.list_tables("sales.eu") == ["taxes"]
        assert catalog.get_table("sales.eu", "taxes").dbName == "sales.eu"
        theirs.create_table("Sales.ORDERS", schema=schema)
        assert catalog.get_table("sales", "returns").tableName == "returns"
        for ask in (lambda: catalog.list_tables("sales"), lambda: catalog.get_table("sales", "orders")):
            with pytest.raises(InvalidObjectError, match=r"Orders and ORDERS|ORDERS and Orders"):
                ask()
    theirs.close()


def test_the_newest_metadata_is_of_the_highest_number(tmp_path: Path) -> None:
    (tmp_path / "metadata").mkdir()
    with pytest.raises(NoSuchObjectError):
        newest_metadata(str(tmp_path))
    for name in ("v9.metadata.json", "v10.metadata.json", "snap-1.avro", "version-hint.text"):
        (tmp_path / "metadata" / name).write_text("9", encoding="utf-8")
    assert newest_metadata(str(tmp_path)).endswith("/metadata/v10.metadata.json")
    (tmp_path / "metadata" / "00011-abc-def.metadata.json").write_text("", encoding="utf-8")
    assert newest_metadata(f"{tmp_path}/").endswith("/metadata/00011-abc-def.metadata.json")
    assert newest_metadata("s3://b/x.metadata.json") == "s3://b/x.metadata.json"
    # The older v11 would be an old snapshot.
    (tmp_path / "metadata" / "v12.metadata.json.gz").write_text("", encoding="utf-8")
    for path in (str(tmp_path), "s3://b/v12.metadata.json.gz"):
        with pytest.raises(InvalidObjectError, match=r"v12\.metadata\.json\.gz is compressed in a form"):
            newest_metadata(path)


def test_two_files_of_the_highest_number_are_refused(tmp_path: Path) -> None:
    """The writer whose commit the catalog has refused may have left its file behind."""
    (tmp_path / "metadata").mkdir()
    for name in ("00003-aaaa", "00003-bbbb", "00002-cccc", "00002-dddd"):
        (tmp_path / "metadata" / f"{name}.metadata.json").write_text("", encoding="utf-8")
    with pytest.raises(
        InvalidObjectError,
        match=r"00003-aaaa\.metadata\.json and 00003-bbbb\.metadata\.json in .* same number",
    ) as caught:
        newest_metadata(str(tmp_path))
    assert "through its catalog" in caught.value.remedy
    (tmp_path / "metadata" / "00004-eeee.metadata.json").write_text("", encoding="utf-8")
    assert newest_metadata(str(tmp_path)).endswith("/00004-eeee.metadata.json")


def test_what_is_no_iceberg_table(tmp_path: Path) -> None:
    broken = tmp_path / "00001-a.metadata.json"
    broken.write_text("{}", encoding="utf-8")
    with Catalogs() as catalogs:
        for path, error in ((tmp_path / "missing", NoSuchObjectError), (broken, ConfigurationError)):
            catalog, _ = catalogs.open("iceberg", {"iceberg.table.path": str(path)}, remote="r")
            with pytest.raises(error):
                catalog.get_table("d", "t")
        with pytest.raises(ConfigurationError, match="glue, hive, rest, sql"):
            catalogs.open("iceberg", {"iceberg.catalog.type": "no such type"}, remote="r")
