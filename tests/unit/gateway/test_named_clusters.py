"""One gateway whose requests name clusters: by gRPC's metadata, or by a catalog."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from airflow_hive_federation.clusters.metadata import read_metadata
from airflow_hive_federation.errors import ConfigurationError, HiveFederationError, MetastoreServerError
from airflow_hive_federation.gateway.config import config_of
from airflow_hive_federation.gateway.handler import Caller
from airflow_hive_federation.gateway.services import layout
from airflow_hive_federation.gateway.serving import Serving, start
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.grpc_settings import GrpcSettings
from airflow_hive_federation.metastore.grpc_wire import CLUSTER_KEY
from airflow_hive_federation.metastore.idl import types
from tests.support.copied_table import COPY, PRIMARY, table
from tests.support.foreign_clients import HIVES, Client
from tests.support.gateways import Clients, Peers, RawClient
from tests.support.metastore_of_catalogs import Metastore, shared_spec
from tests.support.metastore_peers import Thrift


def nobody(connection: str) -> MetastoreSettings:
    raise AssertionError(connection)


@pytest.fixture
def metastore() -> Metastore:
    return Metastore()


Serve = Callable[..., Serving]


@pytest.fixture
def serve(peer: Peers, stack: ExitStack, tmp_path: Path, metastore: Metastore) -> Serve:
    """Start a gateway before the metastore, which lacks what Hive 4 has dropped."""
    registry = tmp_path / "clusters.json"
    clusters = {name: {"fileSystem": f"/{name}".lower(), "jobTracker": name} for name in ("C1", "C2")}
    registry.write_text(
        json.dumps({"hive.cluster.properties": clusters, "hive.default.cluster.name": "C1"}), encoding="utf-8"
    )

    def make(
        *, cluster: dict[str, Any] | None = None, without: Any = (), lacking: Any = (), **sections: Any
    ) -> Serving:
        behind = peer(Thrift(metastore, lacking={"get_table", *lacking}))
        section = {"registry": str(registry), "check_files": False, **(cluster or {})}
        config = {
            "upstream": {"uris": [behind.uri]},
            "cluster": section,
            "thrift": {"port": 0},
            "grpc": {"port": 0},
            "health": {"interval_s": 0},
            **sections,
        }
        made = start(
            config_of({name: value for name, value in config.items() if name not in without}), nobody
        )
        stack.callback(made.stop)
        return made

    return make


@pytest.fixture
def serving(serve: Serve) -> Serving:
    return serve()


@pytest.fixture
def raw(serving: Serving, stack: ExitStack) -> RawClient:
    """A connection to the Thrift front."""
    return connected(serving, stack)


def connected(serving: Serving, stack: ExitStack) -> RawClient:
    host, port = serving.fronts[0].uri.removeprefix("thrift://").split(":")
    made = RawClient((host, int(port)))
    stack.callback(made.close)
    return made


def location(described: Any) -> str:
    return str(described.sd.location)


def get_table(catalog: str, database: str = "d") -> dict[str, Any]:
    return {"req": types.GetTableRequest(catName=catalog, dbName=database, tblName="t")}


def over_grpc(client: Clients, serving: Serving, cluster: str | None) -> MetastoreClient:
    return client(serving.fronts[1].uri, grpc=GrpcSettings(cluster=cluster))


def test_a_catalog_names_a_cluster(serving: Serving, client: Clients, metastore: Metastore) -> None:
    uri = serving.fronts[0].uri
    there, here, unnamed = (client(uri, catalog=name) for name in ("c2", "C1", "hive"))
    for reader, place in ((there, COPY), (here, PRIMARY), (unnamed, PRIMARY), (there, COPY)):
        shown = reader.get_table("d", "t")
        assert (location(shown), shown.catName) == (place, reader.settings.catalog)
        assert metastore.arguments("get_table_req").req.catName == "hive"
        assert [
            location(one) for one in reader.call("get_partitions", reader._database_name("d"), "t", -1)
        ] == [f"{place}/p=a"]
        assert metastore.arguments("get_partitions").db_name in {"d", "@hive#d"}
    database = there.get_database("d")
    assert (database.catalogName, database.locationUri) == ("c2", "file:/c2/d.db")


def test_a_name_before_the_database_names_a_cluster(raw: RawClient, metastore: Metastore) -> None:
    # Hive 2's structs have no field for a catalog, and Hive 4 has no get_table.
    assert location(raw.ask("get_table", dbname="@C2#d", tbl_name="t")["success"]) == COPY
    assert metastore.arguments("get_table_req").req.dbName == "d"
    assert location(raw.ask("get_table", dbname="d", tbl_name="t")["success"]) == PRIMARY
    assert raw.ask("get_databases", pattern="@C2#d*")["success"] == ["d", "hidden"]
    assert metastore.arguments("get_databases").pattern == "@hive#d*"


def test_hive_leaves_a_catalog_out(raw: RawClient, serving: Serving, stack: ExitStack) -> None:
    request = {"req": types.GetPartitionsByNamesRequest(db_name="d", tbl_name="t", names=["p=a"])}

    def shown(client: RawClient) -> tuple[str, str]:
        (part,) = client.ask("get_partitions_by_names_req", **request)["success"].partitions
        return location(part), part.catName

    assert shown(raw) == (f"{PRIMARY}/p=a", "hive")
    raw.ask("get_table_req", **get_table("C2"))
    assert shown(raw) == (f"{COPY}/p=a", "C2")
    by_expression = types.PartitionsByExprRequest(dbName="d", tblName="t", expr=b"")
    (part,) = raw.ask("get_partitions_by_expr", req=by_expression)["success"].partitions
    assert location(part) == f"{COPY}/p=a"
    # Neither another connection, nor another method, inherits it.
    assert shown(connected(serving, stack)) == (f"{PRIMARY}/p=a", "hive")
    assert location(raw.ask("get_table", dbname="d", tbl_name="t")["success"]) == PRIMARY


def test_partitions_that_share_a_description_are_shown(raw: RawClient) -> None:
    def shown(catalog: str) -> types.PartitionSpec:
        request = types.PartitionsByExprRequest(catName=catalog, dbName="d", tblName="t", expr=b"")
        (spec,) = raw.ask("get_partitions_spec_by_expr", req=request)["success"].partitionsSpec
        assert (spec.catName, spec.rootPath) == (catalog, PRIMARY)
        return spec  # type: ignore[no-any-return]

    for catalog in ("hive", "C1"):
        assert shown(catalog).sharedSDPartitionSpec == shared_spec().sharedSDPartitionSpec
    spec = shown("C2")
    assert spec.sharedSDPartitionSpec is None
    assert spec.partitionList is not None
    copied, other = spec.partitionList.partitions or ()
    assert [location(copied), location(other)] == [f"{COPY}/p=a", f"{PRIMARY}/p=b"]
    assert (other.values, other.createTime, other.tableName, other.catName) == (["b"], 7, "t", "C2")
    # Spark's path moves with its partition, and no other one does.
    assert [part.sd and part.sd.serdeInfo for part in (copied, other)] == [
        types.SerDeInfo(parameters={"path": place}) for place in (f"{COPY}/p=a", f"{PRIMARY}/p=a")
    ]


class SameCaller:
    """A plug-in that returns the same caller to each call."""

    def __init__(self, _properties: Any) -> None:
        self._caller = Caller(user="ada", authentication="token", front="grpc")

    def authenticate(self, _evidence: Any) -> Caller:
        return self._caller


def test_calls_over_grpc_remember_no_cluster(serve: Serve, client: Clients) -> None:
    serving = serve(grpc={"port": 0, "authentication_class": f"{__name__}.{SameCaller.__name__}"})
    uri = serving.fronts[1].uri
    assert location(client(uri, catalog="C2").get_table("d", "t")) == COPY
    request = types.GetPartitionsByNamesRequest(db_name="d", tbl_name="t", names=["p=a"])
    (part,) = client(uri).call("get_partitions_by_names_req", request).partitions
    assert location(part) == f"{PRIMARY}/p=a"


def test_metadata_names_a_cluster_in_every_encoding(serving: Serving, client: Clients) -> None:
    for cluster, place in (("C2", COPY), ("c1", PRIMARY), (None, PRIMARY)):
        ours = over_grpc(client, serving, cluster)
        assert location(ours.get_table("d", "t")) == place
        assert [location(part) for part in ours.iter_partitions("d", "t")] == [f"{place}/p=a"]
    uri = serving.fronts[1].uri
    with grpc.insecure_channel(uri.removeprefix("grpc://")) as plain:
        named = grpc.intercept_channel(plain, _Naming("C2"))
        for channel, place in ((plain, PRIMARY), (named, COPY)):
            foreign = Client(channel, uri)
            generated = foreign.call(layout.SERVICE, "get_table_req", req={"dbName": "d", "tblName": "t"})
            assert generated.success.table.sd.location == place
            hives = foreign.call(HIVES, "GetTableReq", db_name="d", tbl_name="t")
            assert hives.table.sd.location == place
            (piece,) = foreign.stream("stream_partitions", database="d", table="t")
            assert [part.sd.location for part in piece.partitions] == [f"{place}/p=a"]


class _Naming(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):  # type: ignore[misc]
    """Names clusters in each call's metadata."""

    def __init__(self, *clusters: str) -> None:
        self._metadata = [(CLUSTER_KEY, cluster) for cluster in clusters]

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return continuation(_WithMetadata(details, self._metadata), request)

    intercept_unary_stream = intercept_unary_unary


class _WithMetadata(grpc.ClientCallDetails):  # type: ignore[misc]
    def __init__(self, details: Any, metadata: list[tuple[str, str]]) -> None:
        self.method, self.timeout, self.credentials = details.method, details.timeout, details.credentials
        self.metadata = metadata
        self.wait_for_ready = self.compression = None


def test_unknown_clusters_are_refused(serving: Serving, client: Clients, raw: RawClient) -> None:
    unknown = r"There is no cluster '[Cc]9'\. .*Use C1 or C2"
    for reader in (
        over_grpc(client, serving, "C9"),
        client(serving.fronts[0].uri, catalog="C9"),
    ):
        with pytest.raises(HiveFederationError, match=unknown):
            reader.get_table("d", "t")
    uri = serving.fronts[1].uri
    for names in (("C9",), ("C1", "C2")):
        with grpc.insecure_channel(uri.removeprefix("grpc://")) as channel:
            foreign = Client(grpc.intercept_channel(channel, _Naming(*names)), uri)
            with pytest.raises(grpc.RpcError) as raised:
                foreign.call(layout.SERVICE, "get_table_req", req={"dbName": "d", "tblName": "t"})
            assert raised.value.code() is grpc.StatusCode.PERMISSION_DENIED
            assert f"There is no cluster '{', '.join(names)}'." in raised.value.details()
    # The metastore's own catalogs pass, and so does a catalog without a name.
    for catalog in ("spark", ""):
        assert location(raw.ask("get_table_req", **get_table(catalog))["success"].table) == PRIMARY


def test_catalogs_of_later_are_found(serving: Serving, raw: RawClient, metastore: Metastore) -> None:
    assert "There is no cluster 'new'" in raw.ask("get_table_req", **get_table("new"))["o1"].message
    metastore.catalogs.append("new")
    assert location(raw.ask("get_table_req", **get_table("new"))["success"].table) == PRIMARY
    assert metastore.arguments("get_table_req").req.catName == "new"


@pytest.mark.parametrize(
    ("request_", "places"),
    [
        (
            ("alter_table_req", types.AlterTableRequest(catName="C1", table=types.Table(catName="C2"))),
            "cluster C1 and cluster C2",
        ),
        (
            ("alter_table_req", types.AlterTableRequest(catName="C1", table=types.Table(catName="spark"))),
            "cluster C1 and catalog spark",
        ),
    ],
    ids=["two clusters", "another catalog"],
)
def test_a_request_names_one_cluster(raw: RawClient, request_: tuple[str, Any], places: str) -> None:
    method, request = request_
    request.dbName = request.table.dbName = "d"
    request.tableName = request.table.tableName = "t"
    (fault,) = raw.ask(method, req=request).values()
    assert f"the request names {places}" in fault.message


def test_metadata_and_catalog_name_one_cluster(serving: Serving, client: Clients) -> None:
    ours = client(serving.fronts[1].uri, catalog="C1", grpc=GrpcSettings(cluster="C2"))
    with pytest.raises(MetastoreServerError, match="the request names cluster C1 and cluster C2"):
        ours.get_table("d", "t")


def test_a_cluster_is_no_catalog(raw: RawClient, metastore: Metastore) -> None:
    assert raw.ask("get_catalog", catName=types.GetCatalogRequest(name="C2"))["success"].catalog.name == "C2"
    assert metastore.arguments("get_catalog").catName.name == "hive"
    requests: dict[str, Any] = {
        "create_catalog": {"catalog": types.CreateCatalogRequest(catalog=types.Catalog(name="C2"))},
        "drop_catalog": {"catName": types.DropCatalogRequest(name="c2")},
    }
    for method, arguments in requests.items():
        (fault,) = raw.ask(method, **arguments).values()
        assert "C2 is a cluster, and no catalog" in fault.message
        assert method not in dict(metastore.calls)
    assert (
        raw.ask("create_catalog", catalog=types.CreateCatalogRequest(catalog=types.Catalog(name="x"))) == {}
    )


def test_clusters_and_catalogs_have_different_names(serve: Serve, metastore: Metastore) -> None:
    metastore.catalogs.append("c2")
    with pytest.raises(ConfigurationError, match="Cluster C2 has the name of a catalog"):
        serve()


def test_catalogs_are_compared_later_if_the_metastore_is_down(
    serve: Serve, metastore: Metastore, stack: ExitStack
) -> None:
    names, metastore.catalogs = [*metastore.catalogs, "c2"], None  # type: ignore[assignment]
    raw = connected(serve(), stack)
    (fault,) = raw.ask("get_table_req", **get_table("C2")).values()
    assert "does not list its catalogs" in fault.message
    metastore.catalogs = names
    (fault,) = raw.ask("get_table_req", **get_table("C2")).values()
    assert "Cluster C2 has the name of a catalog" in fault.message
    names.remove("c2")
    assert location(raw.ask("get_table_req", **get_table("C2"))["success"].table) == COPY


def test_older_metastores_have_no_catalogs(serve: Serve, client: Clients, stack: ExitStack) -> None:
    serving = serve(lacking=["get_catalogs"])
    raw = connected(serving, stack)
    (fault,) = raw.ask("get_table_req", **get_table("C2")).values()
    assert "The metastore has no catalogs, as before Hive 3" in fault.message
    assert location(raw.ask("get_table", dbname="d", tbl_name="t")["success"]) == PRIMARY
    request = types.GetTableRequest(dbName="d", tblName="t")
    named = over_grpc(client, serving, "C2")
    assert location(named.call("get_table_req", request).table) == COPY


def test_no_rule_is_evaded(serve: Serve, client: Clients, stack: ExitStack) -> None:
    rules = [{"access": ["read"], "databases": ["d"]}]
    serving = serve(rule=rules, aliases={"outside": "secret"}, expose={"databases": ["*", "!hidden"]})
    raw = connected(serving, stack)
    for database, reason in (
        ("hidden", "may not read hidden"),
        ("other", "may not read other"),
        ("outside", "may not read outside"),
    ):
        named = over_grpc(client, serving, "C2")
        with pytest.raises(HiveFederationError, match=reason):
            named.get_table(database, "t")
        for arguments in (get_table("C2", database), get_table("C2", f"@C2#{database}")):
            assert reason in raw.ask("get_table_req", **arguments)["o1"].message
    # Lists lack what the caller may not see.
    assert raw.ask("get_databases", pattern="@C2#*")["success"] == ["d"]
    (fault,) = raw.ask("drop_table", dbname="@C1#d", name="t", deleteData=True).values()
    assert "may not make calls of the class write" in fault.message


def test_aliases_hold_for_named_requests(serve: Serve, stack: ExitStack, metastore: Metastore) -> None:
    raw = connected(serve(aliases={"outside": "d"}), stack)
    shown = raw.ask("get_table", dbname="@C2#outside", tbl_name="t")["success"]
    assert (location(shown), shown.dbName) == (COPY, "outside")
    assert metastore.arguments("get_table_req").req.dbName == "d"


def test_tables_are_written_by_the_name_of_their_primary(raw: RawClient, metastore: Metastore) -> None:
    shown = raw.ask("get_table_req", **get_table("C2"))["success"].table
    reason = (
        "t is written in its primary cluster, C1, and not in C2. Remedy: Run the statement in cluster C1."
    )
    for spelling, reasons in (("C2", [reason]), ("C1", [])):
        answer = raw.ask("alter_table", dbname=f"@{spelling}#d", tbl_name="t", new_tbl=table())
        assert [fault.message.partition(".")[2] for fault in answer.values()] == reasons
    assert metastore.arguments("alter_table").dbname == "@hive#d"
    # Read by the name, and written without it, or by that of the primary's cluster.
    shown.catName = None
    metastore.calls.clear()
    for database in ("d", "@C1#d"):
        (fault,) = raw.ask("alter_table", dbname=database, tbl_name="t", new_tbl=shown).values()
        assert f"{COPY} would become the primary location of d.t" in fault.message
    assert "alter_table" not in dict(metastore.calls)
    made = types.Table(catName="C2", dbName="d", tableName="new", sd=types.StorageDescriptor())
    assert raw.ask("create_table", tbl=made) == {}
    created = metastore.arguments("create_table").tbl
    assert (created.catName, location(created)) == ("hive", "file:/c2/d.db/new")
    assert read_metadata(created.parameters, "new").primary == "C2"
    # Hive 4 allows no other place than its own for these.
    made.tableType, made.parameters = "MANAGED_TABLE", {"transactional": "TRUE"}
    assert raw.ask("create_table", tbl=made) == {}
    created = metastore.arguments("create_table").tbl
    assert created.sd.location is None
    assert read_metadata(created.parameters, "new").primary == "C2"
    # The rows of a materialized view lie in the cluster that makes it, which then may rebuild it.
    made.tableType, made.parameters = "MATERIALIZED_VIEW", {}
    assert raw.ask("create_table", tbl=made) == {}
    created = metastore.arguments("create_table").tbl
    assert location(created) == "file:/c2/d.db/new"
    assert read_metadata(created.parameters, "new").primary == "C2"


@pytest.mark.parametrize("copied", [True, False])
def test_tables_of_other_clusters_are_shown_read_only(
    raw: RawClient, metastore: Metastore, copied: bool
) -> None:
    described = table()
    described.parameters = {**(described.parameters if copied else {}), "PROTECT_MODE": "NO_DROP"}
    metastore.table = described
    modes = {
        name: raw.ask("get_table_req", **get_table(name))["success"].table.parameters["PROTECT_MODE"]
        for name in ("C1", "C2", "hive")
    }
    # Trino reads this parameter before it writes.
    assert modes == {"C1": "NO_DROP", "C2": "NO_DROP,READ_ONLY", "hive": "NO_DROP"}
    request = types.GetTablesRequest(catName="C2", dbName="d", tblNames=["t"])
    (by_name,) = raw.ask("get_table_objects_by_name_req", req=request)["success"].tables
    assert by_name.parameters["PROTECT_MODE"] == "NO_DROP,READ_ONLY"


def test_what_marks_a_table_as_read_only_is_not_written(raw: RawClient, metastore: Metastore) -> None:
    metastore.table = types.Table(dbName="d", tableName="t", sd=types.StorageDescriptor(location=PRIMARY))
    shown = raw.ask("get_table_req", **get_table("C2"))["success"].table
    for database in ("d", "@C1#d"):
        shown.catName = None
        (fault,) = raw.ask("alter_table", dbname=database, tbl_name="t", new_tbl=shown).values()
        assert "d.t was read in the view of C2, which shows it read-only" in fault.message
    bare = types.Table(dbName="d", tableName="t", parameters=shown.parameters)
    (fault,) = raw.ask("alter_table", dbname="d", tbl_name="t", new_tbl=bare).values()
    assert "which shows it read-only" in fault.message
    assert "alter_table" not in dict(metastore.calls)
    # CREATE TABLE … LIKE keeps parameters.
    shown.catName, shown.tableName, shown.sd.location = "C2", "like_t", None
    assert raw.ask("create_table", tbl=shown) == {}
    assert metastore.arguments("create_table").tbl.parameters == {"hive.cluster.primary": "C2"}
    shown.parameters["PROTECT_MODE"] = "NO_DROP,READ_ONLY"
    assert raw.ask("create_table", tbl=shown) == {}
    assert metastore.arguments("create_table").tbl.parameters["PROTECT_MODE"] == "NO_DROP"


def test_views_belong_to_no_cluster(raw: RawClient, metastore: Metastore) -> None:
    metastore.table = types.Table(
        dbName="d", tableName="t", tableType="VIRTUAL_VIEW", sd=types.StorageDescriptor(), parameters={}
    )
    shown = raw.ask("get_table_req", **get_table("C2"))["success"].table
    assert shown.parameters == {}
    assert raw.ask("alter_table", dbname="@C2#d", tbl_name="t", new_tbl=shown) == {}
    assert raw.ask("drop_table", dbname="@C2#d", name="t", deleteData=True) == {}
    assert metastore.arguments("drop_table").dbname == "@hive#d"


def test_views_look_into_all_catalogs(serve: Serve, stack: ExitStack, metastore: Metastore) -> None:
    raw = connected(serve(cluster={"name": "C2"}), stack)
    unknown = types.NoSuchObjectException(message="There is no such table.")
    metastore.faults = {None: unknown, "hive": unknown}
    request = types.AlterTableRequest(
        dbName="d", tableName="t", table=types.Table(catName="Spark", dbName="d", tableName="t")
    )
    drop = {"dbname": "@spark#d", "name": "t", "deleteData": True}
    for method, arguments in (("drop_table", drop), ("alter_table_req", {"req": request})):
        (fault,) = raw.ask(method, **arguments).values()
        assert "d.t is written in its primary cluster, C1, and not in C2" in fault.message
        assert method not in dict(metastore.calls)
    # Neither catalog has the table.
    metastore.faults["spark"] = unknown
    assert raw.ask("drop_table", **drop) == {}
    assert metastore.arguments("drop_table").dbname == "@spark#d"
    metastore.calls.clear()
    metastore.faults["spark"] = types.MetaException(message="The database does not answer.")
    (fault,) = raw.ask("drop_table", **drop).values()
    assert "the metastore does not answer which cluster d.t belongs to" in fault.message
    assert "drop_table" not in dict(metastore.calls)


def test_a_side_car_names_a_cluster_for_its_clients(
    serving: Serving, client: Clients, stack: ExitStack
) -> None:
    upstream = {"uris": [serving.fronts[1].uri], "cluster": "C2"}
    config = {"upstream": upstream, "thrift": {"port": 0}, "health": {"interval_s": 0}}
    side_car = start(config_of(config), nobody)
    stack.callback(side_car.stop)
    assert location(client(side_car.fronts[0].uri).get_table("d", "t")) == COPY
    over_thrift = config_of({**config, "upstream": {**upstream, "uris": ["thrift://h:1"]}})
    with pytest.raises(ConfigurationError, match="no URI is grpc://"):
        over_thrift.target(nobody)
    by_connection = config_of({"upstream": {"connection": "far", "cluster": "C2"}})
    target = by_connection.target(lambda _: MetastoreSettings(uris=("grpc://h:1",)))
    assert target.upstreams[0].settings.grpc.cluster == "C2"


def test_names_of_clusters_share_connections(serving: Serving, client: Clients) -> None:
    for cluster in ("C1", "C2", None):
        over_grpc(client, serving, cluster).get_table("d", "t")
    assert [upstream.open_connections for upstream in serving.target.upstreams] == [1]


def test_other_gateways_refuse_the_name(serve: Serve, client: Clients) -> None:
    of_c2 = serve(cluster={"name": "C2"})
    assert location(over_grpc(client, of_c2, "c2").get_table("d", "t")) == COPY
    with pytest.raises(MetastoreServerError, match="This gateway shows cluster C2, and the request names C1"):
        over_grpc(client, of_c2, "C1").get_table("d", "t")
    with pytest.raises(MetastoreServerError, match="There is no cluster 'C9'"):
        over_grpc(client, of_c2, "C9").get_table("d", "t")
    of_none = serve(without=("cluster",))
    with pytest.raises(MetastoreServerError, match="There is no cluster 'C2': this gateway has no registry"):
        over_grpc(client, of_none, "C2").get_table("d", "t")
    assert location(over_grpc(client, of_none, None).get_table("d", "t")) == PRIMARY
