"""A table's properties define its lines of delimited text; some values fit no line."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.model.types import Column
from airflow_hive_federation.tables.read.formats.text import TextForm, parsed_types, text_form

SERDE = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"


def form_of(
    settings: dict[str, str],
    *,
    parameters: dict[str, str] | None = None,
    serde: str = SERDE,
    column_type: str = "string",
) -> TextForm:
    storage = SimpleNamespace(serdeInfo=SimpleNamespace(serializationLib=serde, parameters=settings))
    table = SimpleNamespace(dbName="d", tableName="t", sd=storage, parameters=parameters)
    return text_form(table, [Column.of("c", column_type)])


@pytest.mark.parametrize(
    ("settings", "delimiter"),
    [
        ({}, "\x01"),
        # The defaults of Hive and its metastore.
        ({"serialization.format": "1"}, "\x01"),
        ({"serialization.format": "9"}, "\t"),
        ({"serialization.format": ",", "field.delim": ";"}, ";"),
        ({"field.delim": "||"}, "|"),
        ({"field.delim": ""}, "\x01"),
        ({"line.delim": "\n"}, "\x01"),
    ],
)
def test_delimiters(settings: dict[str, str], delimiter: str) -> None:
    assert form_of(settings) == TextForm(delimiter=delimiter, null="\\N")


def test_null_is_defined_by_serde_or_table() -> None:
    assert form_of({"serialization.null.format": ""}).null == ""
    assert form_of({}, parameters={"serialization.null.format": "nil"}).null == "nil"


def test_a_partition_has_settings_of_its_own() -> None:
    columns = [Column.of("c", "string")]

    def storage(**settings: str) -> SimpleNamespace:
        return SimpleNamespace(serdeInfo=SimpleNamespace(serializationLib=SERDE, parameters=settings))

    table = SimpleNamespace(
        sd=storage(**{"field.delim": ";", "serialization.null.format": "nil"}), parameters=None
    )
    made_before = storage(**{"field.delim": ","})
    assert text_form(table, columns, made_before) == TextForm(delimiter=",", null="nil")
    assert text_form(table, columns, storage()) == TextForm(delimiter=";", null="nil")


@pytest.mark.parametrize(
    "how",
    [
        {"settings": {"escape.delim": "\\"}},
        {"settings": {"field.delim": "-1"}},
        {"settings": {"field.delim": "§"}},
        {"settings": {}, "parameters": {"skip.header.line.count": "1"}},
        {"settings": {}, "parameters": {"skip.footer.line.count": "1"}},
        {"settings": {}, "serde": "org.apache.hadoop.hive.serde2.OpenCSVSerde"},
        {"settings": {}, "column_type": "array<int>"},
        {"settings": {}, "column_type": "timestamp with local time zone"},
    ],
)
def test_forms_that_are_refused(how: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match=r"d\.t is text in a form"):
        form_of(**how)  # type: ignore[arg-type]


def test_lines() -> None:
    form = TextForm(delimiter="\t", null="\\N")
    columns = [pa.array(["1", None, "3"]), pa.array(["", "ä 日😀", None])]
    assert form.lines(columns).to_pylist() == ["1\t", "\\N\tä 日😀", "3\t\\N"]


@pytest.mark.parametrize("text", ["a\tb", "a\nb", "a\r", "\\N"])
def test_texts_that_would_be_read_as_something_else(text: str) -> None:
    form = TextForm(delimiter="\t", null="\\N")
    with pytest.raises(ValueError, match="cannot be written"):
        form.lines([pa.array([None, "good", text])])


def columns(*types: str) -> list[Column]:
    return [Column.of(f"c{index}", type_name) for index, type_name in enumerate(types)]


def test_lines_of_a_partition_are_parsed_by_its_own_columns() -> None:
    """As Hive 4.2 reads them (test_partition_formats)."""
    own = columns("int", "bigint", "string", "decimal(5,2)", "date")
    types = parsed_types(own, columns("int", "string", "int", "decimal(7,3)", "varchar(10)", "int"))
    assert list(map(str, types)) == ["int", "bigint", "int", "decimal(5,2)", "date", "None"]
    # What the table has no more.
    assert len(parsed_types(own, columns("int"))) == 1


@pytest.mark.parametrize(
    ("mine", "wanted"),
    [
        ("bigint", "int"),  # Hive cuts bits off
        ("double", "string"),
        ("decimal(5,2)", "decimal(4,2)"),
        ("timestamp", "string"),
        ("int", "boolean"),
    ],
)
def test_conversions_that_are_not_known_to_be_hives_are_refused(mine: str, wanted: str) -> None:
    with pytest.raises(ConfigurationError, match=f"c0: {mine[:3]}"):
        parsed_types(columns(mine), columns(wanted))
