"""SSH routes in connections, and remotes' properties that name connections."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.hooks.metastore import HiveMetastoreHook
from airflow_hive_federation.hooks.remotes import AirflowConnections
from airflow_hive_federation.hooks.tunnel import SSHTunnelHook
from airflow_hive_federation.tunnel.route import KNOWN_HOSTS
from airflow_hive_federation.tunnel.tunnel import Tunnel

Define = Callable[..., str]
ROUTE = "me@bastion -> hive@node:2222"


def test_a_route_is_the_way_to_the_metastore(connection: Define) -> None:
    extra = {
        "ssh_route": ROUTE,
        "ssh_key_files": "/k/1, /k/2",
        "ssh_known_hosts": "/k/known",
        "ssh_timeout_s": "5",
        "ssh_passphrase": "sesame",
    }
    name = connection(host="inside", extra=extra)
    settings = HiveMetastoreHook(name).settings
    assert isinstance(settings.dialer, Tunnel)
    route = SSHTunnelHook(name).settings
    assert settings.dialer.settings == route
    assert str(route) == ROUTE
    assert [hop.keys for hop in route.hops] == [("/k/1",), ("/k/2",)]
    assert (route.known_hosts, route.timeout_s, route.passphrase) == (("/k/known",), 5, "sesame")
    assert "sesame" not in repr(settings)


def test_without_a_route(connection: Define) -> None:
    name = connection(host="inside")
    assert HiveMetastoreHook(name).settings.dialer is None
    with pytest.raises(ConfigurationError, match="no SSH route"):
        _ = SSHTunnelHook(name).settings
    bare = connection(host="inside", extra={"ssh_route": "bastion"})
    assert SSHTunnelHook(bare).settings.known_hosts == (KNOWN_HOSTS,)


@pytest.mark.parametrize("uri", ["thrift+tls://inside:9083", "https://inside:443/metastore"])
def test_tls_goes_through_a_route(connection: Define, uri: str) -> None:
    settings = HiveMetastoreHook(connection(extra={"ssh_route": ROUTE, "uris": uri})).settings
    assert settings.dialer is not None
    assert [str(endpoint) for endpoint in settings.endpoints()] == [uri]


@pytest.mark.parametrize(
    ("extra", "why"),
    [
        ({"ssh_key_files": "/k/1"}, "no 'ssh_route'"),
        ({"ssh_route": ROUTE, "ssh_timeout_s": "soon"}, "no number"),
        ({"ssh_route": "a b"}, "Hop 1"),
    ],
)
def test_routes_that_do_not_do(connection: Define, extra: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        _ = HiveMetastoreHook(connection(host="inside", extra=extra)).settings


def test_what_properties_of_remotes_name(connection: Define) -> None:
    name = connection(host="thrift+tls://far", login="ann", password="sesame", extra={})
    known = AirflowConnections()
    assert known.metastore(name).endpoints()[0].host == "far"
    assert known.passphrase(name) == "sesame"
    assert known.session(name) == {"aws_access_key_id": "ann", "aws_secret_access_key": "sesame"}
    with pytest.raises(ConfigurationError, match="no Airflow connection 'nobody'"):
        known.metastore("nobody")


def test_an_aws_connection_with_a_role_is_not_read_without_the_role(connection: Define) -> None:
    """The Amazon provider is not installed here."""
    extra = {"region_name": "eu-central-1", "role_arn": "arn:aws:iam::1:role/reader", "external_id": "x"}
    name = connection(login="ann", password="sesame", extra=extra)
    with pytest.raises(ConfigurationError, match=r"external_id, role_arn.*providers-amazon"):
        AirflowConnections().session(name)


def test_storage_options_by_an_aws_connection(connection: Define) -> None:
    lake = connection(
        "lake",
        login="ann",
        password="sesame",
        extra={"region_name": "eu-central-1", "endpoint_url": "http://s3"},
    )
    options = {"s3://lake": {"aws_conn_id": lake, "client_kwargs": {"region_name": "eu-west-1"}}}
    hook = HiveMetastoreHook(connection(host="far", extra={"storage_options": options}))
    assert hook.storage_options == {
        "s3://lake": {
            "key": "ann",
            "secret": "sesame",
            "client_kwargs": {"endpoint_url": "http://s3", "region_name": "eu-west-1"},
        }
    }
    unknown = connection(host="far", extra={"storage_options": {"aws_conn_id": "nobody"}})
    with pytest.raises(ConfigurationError, match="no Airflow connection 'nobody'"):
        _ = HiveMetastoreHook(unknown).storage_options
