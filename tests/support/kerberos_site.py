"""One realm with a KDC, an HDFS and a metastore of Hive 4 on it, each of which asks for Kerberos."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.embedded.configuration import settings_on_hdfs
from airflow_hive_federation.embedded.hdfs import EmbeddedHdfs
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.metastore import DelegationTokenSettings, KerberosSettings, MetastoreSettings
from tests.support.debian import install
from tests.support.gss_java import OPTIONS, give_mechanism, java_options
from tests.support.kdc import REALM, Kdc, running_kdc

SERVER = f"hive/_HOST@{REALM}"
_NAME_NODE = f"hdfs/localhost@{REALM}"
#: Life of the tickets of the principal ``brief``, in seconds.
BRIEF_S = 10
#: Services that act for other users.
_PROXIES = ("hive", "airflow")


@dataclass(frozen=True)
class KerberosSite:
    """The servers of one realm.

    :param base: directory of HDFS that holds the metastore's tables.
    :param other: a second metastore, whose tables lie in ``other_base``.
    :param mechanism: an entry of the class path with which Spark's Java can use Kerberos for SASL.
    """

    kdc: Kdc
    hdfs: EmbeddedHdfs
    metastore: EmbeddedMetastore
    base: str
    other: EmbeddedMetastore
    other_base: str
    mechanism: Path

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

    def other_settings(self) -> MetastoreSettings:
        """Settings of a client of the second metastore with the keytab of alice."""
        return replace(self.settings(), uris=(f"thrift://localhost:{self.other.port}",))

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
            "dfs.namenode.kerberos.principal": _NAME_NODE,
            "dfs.client.failover.max.attempts": "1",
            **login,
        }

    def by_keytab(self, name: str = "alice") -> dict[str, Any]:
        """Options of the HDFS with the keytab of a principal."""
        return self.storage_options(kerberos_principal=f"{name}@{REALM}", kerberos_keytab=self.keytab(name))

    def owner(self, path: str, root: str = "/secured") -> str:
        """Return the owner of a file or directory below the metastore's, as the NameNode knows it."""
        return self.hdfs.shell("-stat", "%u", f"{root}/{path}").strip()


@contextmanager
def kerberos_site(directory: Path) -> Iterator[KerberosSite]:
    """Start the servers of a realm; the principals alice, airflow and brief have keytabs."""
    with ExitStack() as stack:
        kdc = stack.enter_context(running_kdc(directory))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("KRB5_CONFIG", str(kdc.configuration))
        # Nobody's tickets but those of the tests.
        patch.setenv("KRB5CCNAME", f"FILE:{directory}/nothing")
        for name in ("hdfs/localhost", "HTTP/localhost", "hive/localhost", "alice", "airflow"):
            kdc.keytab(name)
        kdc.keytab("brief", ticket_life_s=BRIEF_S)
        homes = {name: directory / name for name in ("hdfs", "metastore", "other")}
        give_mechanism(homes["hdfs"] / "conf")
        for name in ("metastore", "other"):
            shutil.copytree(homes["hdfs"] / "conf", homes[name] / "conf")
        mechanism = shutil.copytree(homes["hdfs"] / "conf", directory / "mechanism")
        with java_options(*OPTIONS, f"-Djava.security.krb5.conf={kdc.configuration}"):
            hdfs = EmbeddedHdfs.start(directory=homes["hdfs"], settings=_hdfs_settings(kdc))
            stack.callback(hdfs.stop)
            root = hdfs.uri.replace("127.0.0.1", "localhost")
            hdfs.shell("-mkdir", "/secured", "/copies")
            hdfs.shell("-chmod", "777", "/secured", "/copies")
            bases = {"metastore": f"{root}/secured", "other": f"{root}/copies"}

            def start(name: str) -> EmbeddedMetastore:
                settings = _metastore_settings(kdc, bases[name])
                return EmbeddedMetastore.start(f"kerberos-{name}", directory=homes[name], settings=settings)

            # Their starts take seconds, on one core each.
            with ThreadPoolExecutor(2) as pool:
                starts = [pool.submit(start, name) for name in bases]
            metastore, other = (stack.enter_context(begun.result()) for begun in starts)
        yield KerberosSite(kdc, hdfs, metastore, bases["metastore"], other, bases["other"], Path(mechanism))


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
    return {
        **_common_settings(),
        "dfs.namenode.keytab.file": keytab,
        "dfs.datanode.kerberos.principal": _NAME_NODE,
        "dfs.datanode.keytab.file": keytab,
        "dfs.web.authentication.kerberos.principal": f"HTTP/localhost@{REALM}",
        "dfs.web.authentication.kerberos.keytab": str(kdc.directory / "HTTP_localhost.keytab"),
        "dfs.block.access.token.enable": "true",
        # The DataNode's ports are free ones above 1023, and its web server speaks HTTP.
        "ignore.secure.ports.for.testing": "true",
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
