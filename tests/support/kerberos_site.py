"""One realm with a KDC, an HDFS and a metastore of Hive 4 on it, each of which asks for Kerberos."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.embedded.configuration import settings_on_hdfs
from airflow_hive_federation.embedded.hdfs import EmbeddedHdfs
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.metastore import DelegationTokenSettings, KerberosSettings, MetastoreSettings
from airflow_hive_federation.storage.filesystem import parse_location
from tests.support.debian import install
from tests.support.gss_java import OPTIONS, give_mechanism, java_options, java_with_module
from tests.support.kdc import REALM, Kdc, running_kdc

SERVER = f"hive/_HOST@{REALM}"
_NAME_NODE = f"hdfs/localhost@{REALM}"
_WEB = f"HTTP/localhost@{REALM}"
#: Principals whose tickets have a brief life.
BRIEF = ("brief", "replicator", "job")
#: That life, in seconds.
BRIEF_S = 10
#: Services that act for other users.
_PROXIES = ("hive", "airflow")


@dataclass(frozen=True)
class KerberosSite:
    """The servers of one realm.

    :param base: directory of HDFS that holds the metastore's tables.
    """

    kdc: Kdc
    hdfs: EmbeddedHdfs
    metastore: EmbeddedMetastore
    base: str

    @property
    def uri(self) -> str:
        """URI of the metastore, by the name that its principal has."""
        return f"thrift://localhost:{self.metastore.port}"

    def keytab(self, name: str) -> str:
        return str(self.kdc.directory / f"{name}.keytab")

    def settings(self, name: str = "alice", **changes: str | None) -> MetastoreSettings:
        """Settings of a client with the keytab of a principal."""
        known = KerberosSettings(
            server_principal=SERVER, client_principal=f"{name}@{REALM}", keytab=self.keytab(name)
        )
        return MetastoreSettings(
            uris=(self.uri,),
            authentication=replace(known, **changes),  # type: ignore[arg-type]
        )

    def by_ticket(self) -> MetastoreSettings:
        """Settings of a client with the ticket in ``KRB5CCNAME``."""
        return self.settings(keytab=None, client_principal=None)

    def by_token(self, token: str) -> MetastoreSettings:
        return MetastoreSettings(uris=(self.uri,), authentication=DelegationTokenSettings(token=token))

    def storage_options(self, **login: str) -> dict[str, Any]:
        """Options of the HDFS, with a login (``kerberos_…``) or with the ticket in ``KRB5CCNAME``."""
        return {
            "hadoop.security.authentication": "kerberos",
            "dfs.data.transfer.protection": "privacy",
            "dfs.client.failover.max.attempts": "1",
            **login,
        }

    def by_keytab(self, name: str = "alice") -> dict[str, Any]:
        """Options of the HDFS with the keytab of a principal."""
        return self.storage_options(kerberos_principal=f"{name}@{REALM}", kerberos_keytab=self.keytab(name))

    def web(self) -> dict[str, str]:
        """Return the option with the address of the NameNode's web server, by the name of its principal."""
        return {"dfs.namenode.http-address": f"localhost:{self.hdfs.web_uri.rpartition(':')[2]}"}

    def by_renewed_keytab(self, name: str) -> dict[str, Any]:
        """Options by which a JVM, too, logs in with a keytab and renews tickets of a brief life."""
        return {
            **self.by_keytab(name),
            "dfs.namenode.kerberos.principal": _NAME_NODE,
            # By default, Hadoop renews at most once per minute, and keeps an idle connection for ten seconds.
            "hadoop.kerberos.min.seconds.before.relogin": "0",
            "ipc.client.connection.maxidletime": "500",
        }

    def owner(self, path: str) -> str:
        """Return the owner of a file or directory below the metastore's, as the NameNode knows it."""
        return self.hdfs.shell("-stat", "%u", f"{parse_location(self.base).path}/{path}").strip()

    @contextmanager
    def another(self, name: str) -> Iterator[KerberosSite]:
        """Start a second metastore of the realm, with its tables in a directory of the same HDFS."""
        base = f"{self.base}-{name}"
        with _metastore(self.kdc, self.hdfs, base, self.kdc.directory / name) as metastore:
            yield replace(self, metastore=metastore, base=base)


@contextmanager
def kerberos_site(directory: Path) -> Iterator[KerberosSite]:
    """Start the servers of a realm, with YARN; alice, airflow and those of :data:`BRIEF` have keytabs."""
    with ExitStack() as stack:
        kdc = stack.enter_context(running_kdc(directory))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("KRB5_CONFIG", str(kdc.configuration))
        # Nobody's tickets but those of the tests.
        patch.setenv("KRB5CCNAME", f"FILE:{directory}/nothing")
        for name in ("hdfs/localhost", "HTTP/localhost", "hive/localhost", "alice", "airflow"):
            kdc.keytab(name)
        for name in BRIEF:
            kdc.keytab(name, ticket_life_s=BRIEF_S)
        home = directory / "hdfs"
        give_mechanism(home / "conf")
        shutil.copytree(home / "conf", directory / "mechanism")
        with java_options(*OPTIONS, f"-Djava.security.krb5.conf={kdc.configuration}"):
            hdfs = EmbeddedHdfs.start(directory=home, settings=_hdfs_settings(kdc), yarn=True)
        stack.callback(hdfs.stop)
        base = f"{hdfs.uri.replace('127.0.0.1', 'localhost')}/secured"
        metastore = stack.enter_context(_metastore(kdc, hdfs, base, directory / "metastore"))
        yield KerberosSite(kdc, hdfs, metastore, base)


@contextmanager
def _metastore(kdc: Kdc, hdfs: EmbeddedHdfs, base: str, home: Path) -> Iterator[EmbeddedMetastore]:
    """Start a metastore in a directory of this machine, with its tables below one of HDFS."""
    path = parse_location(base).path
    # Whoever makes the first database would own the directories of all.
    shared = [path, f"{path}/warehouse", f"{path}/external"]
    for command in (["-mkdir", *shared], ["-chmod", "777", *shared]):
        hdfs.shell(*command)
    shutil.copytree(kdc.directory / "mechanism", home / "conf")
    with java_options(*OPTIONS, f"-Djava.security.krb5.conf={kdc.configuration}"):
        started = EmbeddedMetastore.start(home.name, directory=home, settings=_metastore_settings(kdc, base))
    with started:
        yield started


def _common_settings() -> dict[str, str]:
    return {
        "hadoop.security.authentication": "kerberos",
        "hadoop.rpc.protection": "authentication,integrity,privacy",
        **{f"hadoop.proxyuser.{name}.{kind}": "*" for name in _PROXIES for kind in ("hosts", "groups")},
        "dfs.namenode.kerberos.principal": _NAME_NODE,
        "dfs.data.transfer.protection": "privacy",
    }


def _hdfs_settings(kdc: Kdc) -> dict[str, str]:
    keytab = str(kdc.directory / "hdfs_localhost.keytab")
    web_keytab = str(kdc.directory / "HTTP_localhost.keytab")
    return {
        **_common_settings(),
        "dfs.namenode.keytab.file": keytab,
        "dfs.datanode.kerberos.principal": _NAME_NODE,
        "dfs.datanode.keytab.file": keytab,
        "dfs.web.authentication.kerberos.principal": _WEB,
        "dfs.web.authentication.kerberos.keytab": web_keytab,
        # WebHDFS takes no user but that of SPNEGO; the pages of YARN have no such filter.
        "hadoop.http.authentication.type": "kerberos",
        "hadoop.http.authentication.kerberos.principal": _WEB,
        "hadoop.http.authentication.kerberos.keytab": web_keytab,
        "dfs.block.access.token.enable": "true",
        # The DataNodes' ports are free ones above 1023, and their web servers speak HTTP.
        "ignore.secure.ports.for.testing": "true",
        # All servers of a JVM share one login.
        **{f"yarn.{name}manager.principal": _NAME_NODE for name in ("resource", "node")},
        **{f"yarn.{name}manager.keytab": keytab for name in ("resource", "node")},
        # The variable names the Java of the containers.
        "yarn.nodemanager.admin-env": f"JAVA_HOME={java_with_module().home}",
    }


def _metastore_settings(kdc: Kdc, base: str) -> dict[str, str]:
    asked = {
        "sasl.enabled": "true",
        "kerberos.principal": f"hive/localhost@{REALM}",
        "kerberos.keytab.file": str(kdc.directory / "hive_localhost.keytab"),
    }
    return {
        **_common_settings(),
        **settings_on_hdfs(base),
        **{f"{prefix}metastore.{name}": value for name, value in asked.items() for prefix in ("", "hive.")},
    }


def require_gssapi(factory: pytest.TempPathFactory) -> None:
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
