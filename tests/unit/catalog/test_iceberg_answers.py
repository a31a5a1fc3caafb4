"""Only some answers of a server mean that an Iceberg table does not exist."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.catalog.factories import Factory
from airflow_hive_federation.catalog.iceberg import IcebergCatalog
from airflow_hive_federation.catalog.open import Catalogs
from airflow_hive_federation.errors import (
    ConfigurationError,
    MetastoreUnreachableError,
    NoSuchObjectError,
    RemoteUnavailableError,
)
from airflow_hive_federation.remotes.refresh import OnDropped
from airflow_hive_federation.remotes.session import Remotes
from airflow_hive_federation.remotes.statement import Kind, Name
from tests.support.memory_metastore import MemoryMetastore

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


def model(kind: str, code: int = 404) -> str:
    return json.dumps({"error": {"message": "There is none.", "type": kind, "code": code}})


#: Denials of catalogs that do not send Iceberg's error model.
VENDORS = {
    "OneLake": {"code": "NotFound", "message": "List call on metadata failed.", "target": None},
    "a number as text": {"code": "404", "message": "There is none."},
    "Google": {"code": 404, "message": "Table t was not found.", "status": "NOT_FOUND"},
    "Unity Catalog": {"code": 404, "message": "There is none.", "type": "BaseException"},
}

#: Answers of proxies, of servers whose catalog has another address, and of a catalog without its store.
OTHERS = [
    "404 page not found\n",
    "",
    "<html>Not Found</html>",
    json.dumps({"timestamp": 1, "status": 404, "error": "Not Found"}),
    json.dumps(["error"]),
    json.dumps({"error": {"message": "no route", "code": 404}}),
    json.dumps({"error": {"message": "no route", "code": ["NotFound"]}}),
    json.dumps({"error": {"code": "NotFound"}}),
    json.dumps({"error": {"message": ["none"], "code": "NotFound"}}),
    json.dumps({"error": "NotFound", "message": "no route", "code": "NotFound"}),
    json.dumps({"message": "Table t was not found.", "status_code": 404}),
    model("NoSuchTableException", 503),
    model("FileIOUnknownHostException"),
    "[" * 5000,
]


class Answering(http.server.BaseHTTPRequestHandler):
    """Answers with the body of ``answers`` by path, and with 404 and ``other`` elsewhere."""

    answers: dict[str, Any]
    other: str

    def do_GET(self) -> None:
        answer = self.answers.get(self.path.partition("?")[0])
        self.send_response(404 if answer is None else 200)
        body = (self.other if answer is None else json.dumps(answer)).encode()
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Any]:
    answers: dict[str, Any] = {
        "/v1/config": {"defaults": {}, "overrides": {}},
        "/v1/namespaces": {"namespaces": [["d"]]},
        "/v1/namespaces/d": {"namespace": ["d"], "properties": {}},
        "/v1/namespaces/d/tables": {"identifiers": []},
    }
    handler = type("Handler", (Answering,), {"answers": answers, "other": ""})
    listening = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    handler.uri = f"http://127.0.0.1:{listening.server_port}"  # type: ignore[attr-defined]
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    yield handler
    listening.shutdown()
    listening.server_close()


@pytest.fixture
def catalog(server: Any) -> Iterator[IcebergCatalog]:
    with closing(IcebergCatalog({"type": "rest", "uri": server.uri})) as opened:
        yield opened


def test_a_catalogs_denials(server: Any, catalog: IcebergCatalog) -> None:
    server.other = model("NoSuchTableException")
    assert catalog.list_tables("d") == []
    with pytest.raises(NoSuchObjectError, match=r"d\.t: NoSuchTableException"):
        catalog.get_table("d", "t")
    server.answers["/v1/namespaces/d/tables"]["identifiers"] = [{"namespace": ["d"], "name": "t"}]
    assert catalog.get_tables("d", ["t"]) == []
    # A list of namespaces that lacks one is no denial.
    server.answers["/v1/namespaces"]["namespaces"] = []
    assert catalog.list_tables("d") == ["t"]
    assert catalog.get_database("d").name == "d"
    server.other = model("NoSuchNamespaceException")
    for ask in (catalog.get_database, catalog.list_tables):
        with pytest.raises(NoSuchObjectError, match="namespace n: NoSuchNamespaceException"):
            ask("n")


@pytest.mark.parametrize("error", VENDORS.values(), ids=VENDORS)
def test_a_denial_in_the_form_of_a_vendor(server: Any, catalog: IcebergCatalog, error: Any) -> None:
    server.other = json.dumps({"error": error})
    for ask in (lambda: catalog.get_table("d", "t"), lambda: catalog.get_database("n")):
        with pytest.raises(NoSuchObjectError, match=error["message"]):
            ask()
    server.answers["/v1/namespaces/d/tables"]["identifiers"] = [{"namespace": ["d"], "name": "t"}]
    assert catalog.get_tables("d", ["t"]) == []


@pytest.mark.parametrize("other", OTHERS, ids=[text[:60] or "nothing" for text in OTHERS])
def test_a_404_of_another_server_denies_nothing(server: Any, catalog: IcebergCatalog, other: str) -> None:
    server.other = other
    asked: list[Any] = [
        lambda: catalog.get_table("d", "t"),
        lambda: catalog.get_database("n"),
        lambda: catalog.list_tables("n"),
    ]
    server.answers["/v1/namespaces/d/tables"]["identifiers"] = [{"namespace": ["d"], "name": "t"}]
    asked.append(lambda: catalog.get_tables("d", ["t"]))
    for ask in asked:
        with pytest.raises(MetastoreUnreachableError, match="not that of an Iceberg catalog") as caught:
            ask()
        assert "proxies" in caught.value.remedy


def test_links_stay_while_a_proxy_answers(server: Any) -> None:
    """The namespace is still answered, from a cache for instance; its tables are not."""
    near = MemoryMetastore()
    iceberg = IcebergCatalog({"type": "rest", "uri": server.uri})
    factory = Factory(name="lake", class_names=(), properties={}, open=lambda _: iceberg)
    mirror = Name(database="mirror")
    with near.served() as settings, Remotes(settings, catalogs=Catalogs(factories=(factory,))) as remotes:
        remotes.run("CREATE REMOTE DATABASE mirror CONNECTED TO d VIA 'lake'")
        link: Any = remotes.link(Kind.DATABASE, mirror)
        member = {
            "hive.federation.remote.name": "d.t",
            "hive.federation.remote.member": "true",
        }
        put_link(near, member)
        tables = server.answers.pop("/v1/namespaces/d/tables")
        server.other = "404 page not found"
        for answer in (None, tables):
            if answer is not None:
                # The list of a new, empty server behind the proxy.
                server.answers["/v1/namespaces/d/tables"] = answer
            with pytest.raises(RemoteUnavailableError):
                remotes.refresh(Kind.DATABASE, mirror)
            assert ("mirror", "t") in near.tables
        assert remotes.link(Kind.DATABASE, mirror) == link
        server.other = model("NoSuchTableException")
        assert remotes.refresh(Kind.DATABASE, mirror).dropped == ["t"]


def test_a_table_with_upper_case_that_a_list_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog

    properties = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}"}
    theirs = SqlCatalog("lake", **properties)
    theirs.create_namespace("d")
    theirs.create_table("d.Orders", schema=pa.schema([("id", pa.int64())]))
    iceberg = IcebergCatalog({"type": "sql", "name": "lake", **properties})
    factory = Factory(name="lake", class_names=(), properties={}, open=lambda _: iceberg)
    near, mirror = MemoryMetastore(), Name(database="mirror")
    with near.served() as settings, Remotes(settings, catalogs=Catalogs(factories=(factory,))) as remotes:
        remotes.run("CREATE REMOTE DATABASE mirror CONNECTED TO d VIA 'lake'")
        assert ("mirror", "orders") in near.tables
        with monkeypatch.context() as patch:
            patch.setattr(iceberg._catalog, "list_tables", lambda _: [])
            assert not remotes.refresh(Kind.DATABASE, mirror).dropped
        theirs.drop_table("d.Orders")
        assert remotes.refresh(Kind.DATABASE, mirror).dropped == ["orders"]
    theirs.close()
    iceberg._catalog.close()


def test_a_link_of_a_table_with_upper_case_that_a_list_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog

    properties = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}"}
    theirs = SqlCatalog("lake", **properties)
    theirs.create_namespace("d")
    theirs.create_table("d.Orders", schema=pa.schema([("id", pa.int64())]))
    iceberg = IcebergCatalog({"type": "sql", "name": "lake", **properties})
    factory = Factory(name="lake", class_names=(), properties={}, open=lambda _: iceberg)
    near, link = MemoryMetastore(), Name(database="default", table="here")
    with near.served() as settings, Remotes(settings, catalogs=Catalogs(factories=(factory,))) as remotes:
        remotes.run("CREATE REMOTE TABLE here CONNECTED TO d.orders VIA 'lake'")
        with monkeypatch.context() as patch:
            patch.setattr(iceberg._catalog, "list_tables", lambda _: [])
            assert not remotes.refresh(Kind.TABLE, link, on_dropped=OnDropped.DROP).changed
        theirs.drop_table("d.Orders")
        assert remotes.refresh(Kind.TABLE, link, on_dropped=OnDropped.DROP).dropped == ["here"]
    theirs.close()
    iceberg._catalog.close()


def test_one_thread_at_a_time_calls_the_catalog(catalog: IcebergCatalog) -> None:
    """pyiceberg's catalog of Hive has one connection."""
    from pyiceberg.exceptions import NoSuchTableError

    free: list[bool] = []

    def load(_: Any) -> Any:
        with ThreadPoolExecutor(1) as other:
            free.append(other.submit(catalog._lock.acquire, blocking=False).result())
        raise NoSuchTableError("There is none.")

    catalog._catalog.load_table = load
    with pytest.raises(NoSuchObjectError):
        catalog.get_table("d", "t")
    assert free == [False]


def put_link(near: MemoryMetastore, parameters: dict[str, str]) -> None:
    from tests.support.catalog_contract import tables

    table: Any = tables("file:/far")["plain"][0]
    table.dbName, table.tableName, table.parameters = "mirror", "t", parameters
    near.put_table(table)


def test_a_missing_file_of_the_settings_denies_nothing(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.pem")
    catalog = IcebergCatalog({"type": "rest", "uri": "http://127.0.0.1:1"})

    class Lacking:
        def list_namespaces(self, *_: Any) -> list[Any]:
            raise FileNotFoundError(missing)

        list_tables = list_namespaces

    catalog.__dict__["_catalog"] = Lacking()
    with pytest.raises(ConfigurationError, match=r"missing\.pem"):
        catalog.get_table("d", "t")


def test_a_hive_table_in_the_place_of_an_iceberg_table(catalog: IcebergCatalog) -> None:
    from pyiceberg.exceptions import NoSuchPropertyException

    def load(_: Any) -> Any:
        raise NoSuchPropertyException("Property table_type missing")

    catalog._catalog.load_table = load
    with pytest.raises(NoSuchObjectError, match="table_type"):
        catalog.get_table("d", "t")
