"""Hadoop's key server (KMS), whose keys encrypt the files of HDFS's encryption zones."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from airflow_hive_federation.embedded.configuration import site_xml
from airflow_hive_federation.embedded.jars import hdfs_jars, metastore_jars
from airflow_hive_federation.embedded.jvm import clean_environment, free_port, java_command
from airflow_hive_federation.embedded.process import end_server
from airflow_hive_federation.runtime.java import find_java
from airflow_hive_federation.waiting import PollPolicy, wait_until
from tests.support.plain_metastore import fetched

#: Beside the jars of the embedded metastore, which have Hadoop 3.4.1 and Jetty.
_JARS = """
test org.apache.hadoop:hadoop-kms:3.4.1@jar \
a6b1c3c96be76d7c3ec734c9eb8e24b1bac2e4fe423de783f731ad25caac9d80 96796
test com.sun.jersey:jersey-core:1.19.4@jar \
64b03198e0264849d0fc341857ebcc9c882b1909a2dc35a0972fe7d901b826e5 436731
test com.sun.jersey:jersey-server:1.19.4@jar \
afc0f6cd21d4742d312cb511a8fa2a253213285f5425dda005708fd5928504e6 705276
test com.sun.jersey:jersey-servlet:1.19.4@jar \
08c80d4e83ad8d20dcfbc633235bfa68f8519ceddb8ad2d6d112e95f43288e90 128990
test javax.ws.rs:jsr311-api:1.1.1@jar \
ab1534b73b5fa055808e6598a5e73b599ccda28c3159c3c0908977809422ee4a 46367
test org.eclipse.jetty:jetty-webapp:9.4.57.v20241219@jar \
f2cef977201142d18ad40986b388623e4ca22b89f38b7208a36a6453f993e37c 140308
test org.eclipse.jetty:jetty-xml:9.4.57.v20241219@jar \
531320243d5ab3a90c1e0d254d1267b3ec1af6531b8b0a3cce4c21ddb2366f33 68894
test org.slf4j:jul-to-slf4j:1.7.30@jar \
bbcbfdaa72572255c4f85207a9bfdb24358dc993e41252331bd4d0913e4988b9 4592
"""
_MAIN = "org.apache.hadoop.crypto.key.kms.server.KMSWebServer"
_OPERATIONS = ("MANAGEMENT", "GENERATE_EEK", "DECRYPT_EEK", "READ")
#: The key server refuses this user's requests to decrypt the keys of files.
BARRED = "mallory"


@dataclass(frozen=True)
class KeyServer:
    """A running key server.

    :param port: its port on 127.0.0.1.
    :param process: its JVM.
    """

    port: int
    process: subprocess.Popen[bytes] = field(repr=False)

    @property
    def uri(self) -> str:
        """Its URI, for ``hadoop.security.key.provider.path``."""
        return f"kms://http@127.0.0.1:{self.port}/kms"

    def make_key(self, name: str) -> None:
        body = {"name": name, "cipher": "AES/CTR/NoPadding", "length": 128}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/kms/v1/keys?user.name=root",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request):
            pass


def cipher_jars() -> list[Path]:
    """The jars that Hadoop's Java needs beside it for files of an encryption zone."""
    return [jar for jar in hdfs_jars(find_java()) if jar.name.startswith("bcprov-")]


@contextmanager
def key_server(home: Path) -> Iterator[KeyServer]:
    """Run the key server with an empty store of keys below ``home``."""
    port = free_port()
    sites = {
        "kms-site": {
            "hadoop.kms.key.provider.uri": f"jceks://file@{home}/keys",
            "hadoop.kms.authentication.type": "simple",
            "hadoop.kms.http.host": "127.0.0.1",
            "hadoop.kms.http.port": str(port),
        },
        "kms-acls": {
            **{f"default.key.acl.{operation}": "*" for operation in _OPERATIONS},
            "hadoop.kms.blacklist.DECRYPT_EEK": BARRED,
        },
        "core-site": {"hadoop.tmp.dir": f"{home}/temporary"},
    }
    for name, settings in sites.items():
        (home / f"{name}.xml").write_text(site_xml(settings), encoding="utf-8")
    java = find_java()
    command = java_command(
        java,
        _MAIN,
        [],
        class_path=[*metastore_jars(java), *cipher_jars(), *fetched(_JARS), home],
        argument_file=home / "java.args",
        properties={
            "kms.config.dir": str(home),
            "kms.log.dir": str(home),
            # Only looked for: the log is that of the embedded servers.
            "log4j.configuration": "none",
        },
    )
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=home, env=clean_environment(), stdout=log, stderr=log)
    try:
        policy = PollPolicy(first_s=0.2, factor=1, timeout_s=200)
        server = KeyServer(port, process)
        ready = wait_until(lambda: process.poll() is not None or _answers(port), policy)
        log_text = (home / "log").read_text(errors="replace")[-3000:]
        assert ready, log_text
        assert process.poll() is None, log_text
        yield server
    finally:
        end_server(process, timeout_s=30)


def _answers(port: int) -> bool:
    address = f"http://127.0.0.1:{port}/kms/v1/keys/names?user.name=root"
    try:
        with urllib.request.urlopen(address):
            return True
    except urllib.error.URLError:
        return False
