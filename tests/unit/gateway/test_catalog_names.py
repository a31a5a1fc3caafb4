"""Catalogs in messages, as requests name clusters by them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from airflow_hive_federation.gateway.names import catalogs, with_catalogs
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.idl.service import METHODS
from airflow_hive_federation.metastore.protocol import encode
from airflow_hive_federation.metastore.struct import Struct
from airflow_hive_federation.metastore.wire import from_bytes


def structs() -> Iterator[type[Struct]]:
    yield from (kind for kind in vars(types).values() if isinstance(kind, type) and issubclass(kind, Struct))
    yield from (message_types(method)[0] for method in METHODS)


def test_every_field_of_a_catalog_is_known() -> None:
    others = {"CreateCatalogRequest", "GetCatalogResponse", "create_catalog_args"}
    for kind in structs():
        for number, (ttype, name, *_) in kind.thrift_spec.items():
            if ttype != 11 or kind.__name__ in others:
                continue
            if name.lower() in {"catname", "cat_name", "catalog", "catalogname"}:
                message = encode(kind(**{name: "C2"}))
                (catalog,) = catalogs(message, 0, kind)
                again: Any = from_bytes(kind, with_catalogs(message, [(catalog, "hive")]))
                assert getattr(again, name) == "hive", (kind, number)


def test_catalogs_are_written_in_their_form() -> None:
    request = types.GetTableRequest(
        catName="C2", dbName="@C2#d", tblName="t", validWriteIdList="C2.d.t:5:5::"
    )
    message = encode(request)
    names = catalogs(message, 0, types.GetTableRequest)
    assert sorted(name.text.value for name in names) == ["@C2#d", "C2", "C2.d.t:5:5::"]
    again: Any = from_bytes(types.GetTableRequest, with_catalogs(message, [(name, "hive") for name in names]))
    assert again == types.GetTableRequest(
        catName="hive", dbName="@hive#d", tblName="t", validWriteIdList="hive.d.t:5:5::"
    )
    # Hive refuses a name without its mark; with one, it would be every database.
    assert catalogs(encode(types.Table(dbName="@C2", tableName="t")), 0, types.Table) == []
