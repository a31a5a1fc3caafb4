"""A real Kerberos: MIT's KDC on a loopback port, with a database of its own."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from airflow_hive_federation.embedded.jvm import free_port
from airflow_hive_federation.embedded.process import end_server
from airflow_hive_federation.waiting import PollPolicy, wait_until
from tests.support.debian import require_program

REALM = "HIVE.TEST"


@dataclass(frozen=True)
class Kdc:
    """A running KDC.

    :param configuration: its ``krb5.conf``, for ``KRB5_CONFIG`` and for Java.
    """

    directory: Path
    configuration: Path
    environment: dict[str, str]
    kadmin: str

    def keytab(self, principal: str, *, ticket_life_s: int | None = None) -> Path:
        """Make a principal with random keys; return the file of them.

        :param ticket_life_s: the longest life of its tickets, instead of a day.
        """
        path = self.directory / f"{principal.replace('/', '_')}.keytab"
        life = "" if ticket_life_s is None else f'-maxlife "{ticket_life_s} seconds" '
        self._administer(f"addprinc -randkey {life}{principal}")
        self._administer(f"ktadd -k {path} {principal}")
        return path

    def kinit(self, principal: str, cache: Path, *options: str) -> dict[str, str]:
        """Obtain a ticket by the principal's keytab; return the environment that uses it."""
        program = require_program("kinit", "krb5-user")
        environment = {**self.environment, "KRB5CCNAME": f"FILE:{cache}"}
        keytab = self.directory / f"{principal.replace('/', '_')}.keytab"
        command = [program, *options, "-kt", str(keytab), f"{principal}@{REALM}"]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        return {"KRB5CCNAME": environment["KRB5CCNAME"]}

    def tickets_issued(self, principal: str) -> int:
        """Return the number of tickets that the KDC has issued to a principal by its keys."""
        lines = (self.directory / "issued.log").read_text(encoding="utf-8").splitlines()
        return sum("AS_REQ" in line and "ISSUE" in line and f" {principal}@" in line for line in lines)

    def _administer(self, command: str) -> None:
        subprocess.run(
            [self.kadmin, "-r", REALM, "-q", command], env=self.environment, check=True, capture_output=True
        )


@contextmanager
def running_kdc(directory: Path) -> Iterator[Kdc]:
    """A KDC of the realm :data:`REALM`, for as long as the block lasts."""
    server = require_program("krb5kdc", "krb5-kdc")
    kadmin = require_program("kadmin.local", "krb5-admin-server")
    utility = require_program("kdb5_util", "krb5-kdc")
    port = free_port()
    configuration, profile = directory / "krb5.conf", directory / "kdc.conf"
    configuration.write_text(
        f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n"
        f" dns_canonicalize_hostname = false\n rdns = false\n udp_preference_limit = 1\n"
        f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{port}\n }}\n"
        f"[logging]\n kdc = FILE:{directory}/issued.log\n",
        encoding="utf-8",
    )
    profile.write_text(
        f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{port}\n kdc_tcp_listen = 127.0.0.1:{port}\n"
        f"[realms]\n {REALM} = {{\n  database_name = {directory}/principal\n"
        f"  key_stash_file = {directory}/stash\n  acl_file = {directory}/acl\n }}\n",
        encoding="utf-8",
    )
    environment = {**os.environ, "KRB5_CONFIG": str(configuration), "KRB5_KDC_PROFILE": str(profile)}
    subprocess.run(
        [utility, "-r", REALM, "create", "-s", "-P", secrets.token_hex()],
        env=environment,
        check=True,
        capture_output=True,
    )
    with (directory / "kdc.log").open("wb") as log:
        process = subprocess.Popen([server, "-n", "-r", REALM], env=environment, stdout=log, stderr=log)

    def listens() -> bool:
        assert process.poll() is None, (directory / "kdc.log").read_text(encoding="utf-8")
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
            return True
        return False

    try:
        assert wait_until(listens, PollPolicy(first_s=0.02, longest_s=0.5, timeout_s=60))
        yield Kdc(directory, configuration, environment, kadmin)
    finally:
        end_server(process)
