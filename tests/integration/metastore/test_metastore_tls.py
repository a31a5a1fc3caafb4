"""A real Hive metastore that speaks TLS, and several of them behind one list of URIs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import MetastoreError, MetastoreUnreachableError, RemoteError
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings, TlsSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.remotes.session import Remotes
from tests.support.gateway_front import work_through
from tests.support.tls_metastore import Identity, make_identity, secured_settings, settings_for
from tests.support.transports import through_ssh


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    return make_identity(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def secured(identity: Identity, own_metastores: Callable[..., EmbeddedMetastore]) -> EmbeddedMetastore:
    return own_metastores("secured", settings=secured_settings(identity))


def test_a_trusted_certificate_is_enough(secured: EmbeddedMetastore, identity: Identity) -> None:
    # More than a record of TLS there and back.
    texts = {str(number): "ü" * 3_000 for number in range(50)}
    with MetastoreClient(settings_for(secured, identity.certificate)) as client:
        assert client.list_databases() == ["default"]
        client.create_database(types.Database(name="by_tls", parameters=texts))
        assert client.get_database("by_tls").parameters == texts
        client.drop_database("by_tls", delete_data=True)


def test_a_remote_behind_tls(
    secured: EmbeddedMetastore, source: EmbeddedMetastore, identity: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    statement = f"""CREATE REMOTE DATABASE behind_tls CONNECTED TO default
        VIA 'thrift' 'hive.metastore.uris' = '{secured.uri}' 'hive.metastore.use.SSL' = 'true'"""
    local = MetastoreSettings(uris=(source.uri,))
    with Remotes(local) as remotes, pytest.raises(RemoteError, match=r"Remote behind_tls.*certificate"):
        remotes.run(statement)
    # By the system's authorities, of which it now is one.
    monkeypatch.setenv("SSL_CERT_FILE", str(identity.certificate))
    with Remotes(local) as remotes:
        remotes.run(f"{statement}; REFRESH REMOTE DATABASE behind_tls; DROP REMOTE DATABASE behind_tls")


def test_a_gateway_before_it(secured: EmbeddedMetastore, identity: Identity) -> None:
    """An engine that knows plain Thrift only gets to it."""
    uri = secured.uri.replace("thrift://", "thrift+tls://")
    work_through({"uris": [uri], "ca_file": str(identity.certificate)}, "gateway_tls")


def test_an_unknown_certificate_is_refused(secured: EmbeddedMetastore, tmp_path: Path) -> None:
    other = make_identity(tmp_path)
    for ca_file in (None, other.certificate):
        with (
            MetastoreClient(settings_for(secured, ca_file)) as client,
            pytest.raises(MetastoreError, match="certificate"),
        ):
            client.list_databases()


def test_no_tls_to_a_server_that_wants_it_is_a_typed_error(secured: EmbeddedMetastore) -> None:
    settings = MetastoreSettings(uris=(secured.uri,), connect_timeout_s=3, call_timeout_s=5)
    with MetastoreClient(settings) as client, pytest.raises(MetastoreError):
        client.list_databases()


def test_a_dead_uri_is_passed_over_and_a_dead_list_names_all(source: EmbeddedMetastore) -> None:
    dead = ("thrift://127.0.0.1:1", "thrift://127.0.0.1:2")
    for _ in range(5):  # the order is random
        with MetastoreClient(MetastoreSettings(uris=(*dead, source.uri))) as client:
            assert "default" in client.list_databases()
    with (
        MetastoreClient(MetastoreSettings(uris=dead)) as client,
        pytest.raises(
            MetastoreUnreachableError,
            match=r"(?s)127\.0\.0\.1:1.*127\.0\.0\.1:2|127\.0\.0\.1:2.*127\.0\.0\.1:1",
        ),
    ):
        client.list_databases()


def test_tls_goes_through_an_ssh_tunnel(
    secured: EmbeddedMetastore, identity: Identity, tmp_path: Path
) -> None:
    with through_ssh(tmp_path / "ssh", secured.uri.replace("thrift://", "thrift+tls://")) as settings:
        tls = TlsSettings(ca_file=str(identity.certificate))
        # More than a record of TLS there and back.
        texts = {str(number): "ü" * 3_000 for number in range(50)}
        with MetastoreClient(replace(settings, tls=tls)) as client:
            client.create_database(types.Database(name="in_a_tunnel", parameters=texts))
            assert client.get_database("in_a_tunnel").parameters == texts
            client.drop_database("in_a_tunnel", delete_data=True)
        with (
            MetastoreClient(replace(settings, tls=TlsSettings())) as client,
            pytest.raises(MetastoreError, match="certificate"),
        ):
            client.list_databases()
        plain = replace(settings, uris=(secured.uri,))
        with MetastoreClient(plain) as client, pytest.raises(MetastoreError):
            client.list_databases()
