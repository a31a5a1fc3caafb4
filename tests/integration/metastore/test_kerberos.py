"""Metastores that authenticate their clients: Kerberos by MIT's KDC, passwords by Hive 4."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import (
    MetastoreAuthenticationError,
    MetastoreError,
    MetastoreProtocolError,
    MetastoreUnreachableError,
    RemoteUnavailableError,
)
from airflow_hive_federation.metastore import (
    KerberosSettings,
    MetastoreClient,
    MetastoreSettings,
    PlainSettings,
    hms_client,
)
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.remotes.session import Remotes
from airflow_hive_federation.runtime.java import Java, _machine_homes, probe
from tests.support.debian import install, require_program
from tests.support.gateway_front import gateway, work_through
from tests.support.kdc import REALM, Kdc, running_kdc
from tests.support.plain_metastore import older_settings, plain_metastore, sparks_jars
from tests.support.small_source import make_table

SERVER = f"hive/_HOST@{REALM}"


@dataclass(frozen=True)
class Secured:
    """A metastore behind Kerberos."""

    kdc: Kdc
    uri: str
    keytab: Path

    def settings(self, **changes: str | None) -> MetastoreSettings:
        known = KerberosSettings(
            server_principal=SERVER, client_principal=f"alice@{REALM}", keytab=str(self.keytab)
        )
        return MetastoreSettings(
            uris=(self.uri,),
            authentication=replace(known, **changes),  # type: ignore[arg-type]
        )


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    _require_gssapi(tmp_path_factory)
    with pytest.MonkeyPatch.context() as patch, running_kdc(tmp_path_factory.mktemp("kdc")) as running:
        patch.setenv("KRB5_CONFIG", str(running.configuration))
        # Nobody's tickets but those of the tests.
        patch.setenv("KRB5CCNAME", f"FILE:{running.directory}/tickets")
        yield running


@pytest.fixture(scope="module")
def secured(
    request: pytest.FixtureRequest, kdc: Kdc, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    """A Hive 2.3 metastore: the package's own Java has no GSSAPI, and Hive 4.2 runs on no older one."""
    home = tmp_path_factory.mktemp("kerberos")
    alice = kdc.keytab("alice")
    client = KerberosSettings(server_principal=SERVER, client_principal=f"alice@{REALM}", keytab=str(alice))
    settings = {
        **older_settings(home),
        "hadoop.security.authentication": "kerberos",
        "hadoop.rpc.protection": request.param,
        "hive.metastore.sasl.enabled": "true",
        "hive.metastore.kerberos.principal": SERVER,
        "hive.metastore.kerberos.keytab.file": str(kdc.keytab("hive/localhost")),
    }
    with plain_metastore(
        home,
        [sparks_jars()],
        settings,
        uri="thrift://localhost:{}",
        java=_java_with_gssapi(),
        properties={"java.security.krb5.conf": str(kdc.configuration)},
        authentication=client,
    ) as uri:
        yield Secured(kdc, uri, alice)


@pytest.mark.parametrize("secured", ["authentication", "integrity", "privacy"], indirect=True)
def test_by_keytab(secured: Secured) -> None:
    # More than one frame there and back.
    texts = {str(number): "ü" * 3_000 for number in range(400)}
    with MetastoreClient(secured.settings()) as client:
        client.create_database(types.Database(name="known", parameters=texts))
        assert client.get_database("known").parameters == texts
        # Only for whom the server knows.
        assert client.call("get_delegation_token", "alice", f"alice@{REALM}")
        client.drop_database("known", delete_data=True)


@pytest.mark.parametrize("secured", ["privacy"], indirect=True)
def test_by_the_ticket_of_kinit(secured: Secured) -> None:
    settings = secured.settings(keytab=None, client_principal=None)
    with (
        MetastoreClient(settings) as client,
        pytest.raises(MetastoreAuthenticationError, match="Kerberos to"),
    ):
        client.list_databases()
    kinit = require_program("kinit", "krb5-user")
    subprocess.run([kinit, "-kt", str(secured.keytab), f"alice@{REALM}"], check=True)
    with MetastoreClient(settings) as client:
        assert client.list_databases() == ["default"]
    with hms_client(settings) as client:
        assert client.get_all_databases() == ["default"]


@pytest.mark.parametrize("secured", ["privacy"], indirect=True)
def test_a_remote_behind_kerberos(secured: Secured, source: EmbeddedMetastore, tmp_path: Path) -> None:
    with MetastoreClient(secured.settings()) as far:
        far.create_database(types.Database(name="guarded"))
        make_table(far, "guarded", "orders", location=f"file:{tmp_path}/orders")
    kinit = require_program("kinit", "krb5-user")
    subprocess.run([kinit, "-kt", str(secured.keytab), f"alice@{REALM}"], check=True)
    where = f"'hive.metastore.uris' = '{secured.uri}'"
    with Remotes(MetastoreSettings(uris=(source.uri,))) as remotes:
        with pytest.raises(RemoteUnavailableError, match="authentication"):
            remotes.run(f"CREATE REMOTE DATABASE behind_kerberos CONNECTED TO guarded {where}")
        remotes.run(
            f"CREATE REMOTE DATABASE behind_kerberos CONNECTED TO guarded {where} "
            f"'hive.metastore.kerberos.principal' = '{SERVER}'"
        )
        with MetastoreClient(MetastoreSettings(uris=(source.uri,))) as near:
            assert near.list_tables("behind_kerberos") == ["orders"]
        remotes.run("DROP REMOTE DATABASE behind_kerberos")


@pytest.mark.parametrize("secured", ["privacy"], indirect=True)
def test_a_gateway_before_it(secured: Secured) -> None:
    """An engine without Kerberos gets to it, as the gateway's principal."""
    upstream = {
        "uris": [secured.uri],
        "kerberos_principal": SERVER,
        "client_principal": f"alice@{REALM}",
        "keytab": str(secured.keytab),
    }
    work_through(upstream, "gateway_kerberos")
    with (
        gateway({"upstream": {**upstream, "client_principal": f"bob@{REALM}"}}) as stranger,
        MetastoreClient(MetastoreSettings(uris=(stranger.fronts[0].uri,))) as client,
        pytest.raises(MetastoreError, match=f"Kerberos to .*{REALM}"),
    ):
        client.list_databases()


@pytest.mark.parametrize("secured", ["privacy"], indirect=True)
def test_what_is_refused(secured: Secured) -> None:
    def refused(settings: MetastoreSettings, error: type[Exception], match: str) -> None:
        with MetastoreClient(settings) as client, pytest.raises(error, match=match):
            client.list_databases()

    refused(secured.settings(keytab="/nowhere"), MetastoreAuthenticationError, "keytab")
    refused(secured.settings(client_principal=f"bob@{REALM}"), MetastoreAuthenticationError, "bob|keytab")
    other = secured.settings(server_principal=f"hive/other.example.com@{REALM}")
    refused(other, MetastoreAuthenticationError, f"hive/other.example.com@{REALM}")
    refused(MetastoreSettings(uris=(secured.uri,)), MetastoreUnreachableError, "give the authentication")


def test_kerberos_where_nobody_asks_for_it(kdc: Kdc, source: EmbeddedMetastore) -> None:
    kdc.keytab("hive/127.0.0.1")
    keytab = str(kdc.keytab("carol"))
    settings = MetastoreSettings(
        uris=(source.uri,), authentication=KerberosSettings(server_principal=SERVER, keytab=keytab)
    )
    with MetastoreClient(settings) as client, pytest.raises(MetastoreProtocolError, match="SASL"):
        client.list_databases()


def test_by_password(tmp_path: Path) -> None:
    """Hive 4's own check of one user (``AuthFactory``: CONFIG), as LDAP's, PAM's and CUSTOM's go."""
    asked = {
        "metastore.authentication": "CONFIG",
        "metastore.authentication.config.username": "alice",
        "metastore.authentication.config.password": "open sesame",
        "metastore.execute.setugi": "false",
    }
    with EmbeddedMetastore.start("password", directory=tmp_path / "m", settings=asked) as metastore:

        def client(authentication: PlainSettings | None) -> MetastoreClient:
            return MetastoreClient(MetastoreSettings(uris=(metastore.uri,), authentication=authentication))

        with client(PlainSettings(user="alice", password="open sesame")) as known:
            assert known.list_databases() == ["default"]
            assert known.settings.effective_user() == "alice"
        wrong = PlainSettings(user="alice", password="sesame, open")
        with client(wrong) as unknown, pytest.raises(MetastoreAuthenticationError, match="PLAIN") as caught:
            unknown.list_databases()
        assert "sesame" not in f"{caught.value!r} {caught.value} {wrong!r}"
        with client(None) as silent, pytest.raises(MetastoreUnreachableError) as closed:
            silent.list_databases()
        assert "give the authentication" in str(closed.value.remedy)


def _require_gssapi(factory: pytest.TempPathFactory) -> None:
    """The package gssapi, which has no wheels: built here, beside the environment."""
    try:
        import gssapi  # noqa: F401
    except ImportError:
        install("libkrb5-dev", "gcc", "libc6-dev")
        site = factory.mktemp("gssapi")
        command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable]
        command += ["--target", str(site), "gssapi==1.12.0"]
        # By uv's own certificates; behind a proxy with another authority, by the system's (see Makefile).
        if subprocess.run(command, check=False, env=os.environ).returncode:
            subprocess.run([*command, "--system-certs"], check=True, env=os.environ)
        sys.path.append(str(site))


def _java_with_gssapi() -> Java:
    if (java := _find_java_with_gssapi()) is None:
        install("openjdk-17-jre-headless")
        java = _find_java_with_gssapi()
    if java is None:
        pytest.skip("needs a Java of 17 to 23 with GSSAPI (package openjdk-17-jre-headless)")
    return java


def _find_java_with_gssapi() -> Java | None:
    for home in _machine_homes(os.environ):
        java = probe(home)
        if java is None or java.version not in range(17, 24):
            continue
        command = [str(java.executable), "--list-modules"]
        if "jdk.security.jgss@" in subprocess.run(command, capture_output=True, text=True, check=True).stdout:
            return java
    return None
