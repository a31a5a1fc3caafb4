"""S3Proxy, a server of S3 that keeps each object as a file, and the jars with which it runs."""

from __future__ import annotations

import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from airflow_hive_federation.embedded.jvm import clean_environment, free_port, java_command
from airflow_hive_federation.embedded.process import end_server
from airflow_hive_federation.runtime.java import find_java
from airflow_hive_federation.waiting import PollPolicy, wait_until
from tests.support.plain_metastore import fetched

_MAIN = "org.gaul.s3proxy.Main"
#: S3Proxy's own dependencies, without the drivers of stores that it can hide behind S3's requests. Jetty is
#: in its jar, and Jackson's annotations have the version that Jackson's bill of materials names.
_JARS = """
test args4j:args4j:2.37@jar \
5a13b0f7ff519183e55b8f453b8faaa23b92ccf0443f1fac515fedf2246bdc18 158359
test com.fasterxml.jackson.core:jackson-annotations:2.22@jar \
21ddb598807d3a51a876704eb979d9296e1c6a6f47ab1826ff88c6d6a127a2d0 84211
test com.fasterxml.woodstox:woodstox-core:7.0.0@jar \
eeb3853282c24964a93a6eb4c1bbcb60c8d09fd8e0ffc75ab64ad21045a1fa78 1608603
test com.google.guava:guava:33.7.1-jre@jar \
796d8e28ac64e83a47c4c5935a8fecc4682650a04bbdead738ef0f5a3a0e6c46 3057607
test jakarta.servlet:jakarta.servlet-api:6.0.0@jar \
c034eb1afb158987dbb53a5fea0cadf611c8dae8daadd59c44d9d5ab70129cef 347613
test org.codehaus.woodstox:stax2-api:4.2.2@jar \
a61c48d553efad78bc01fffc4ac528bebbae64cbaec170b2a5e39cf61eb51abe 195922
test org.gaul:s3proxy:4.1.0@jar \
d0a0886f02f31f025304194e637343cc15c63a958a5e25b6ca9e910e197ede85 3584561
test org.slf4j:slf4j-api:2.0.18@jar \
44508fd1576500688c790b190acdd16fec4f8c79a3e0b900afd70503cf055f55 69982
test org.slf4j:slf4j-simple:2.0.18@jar \
8268bd018a5709b07209e0d8ca6221a37584ba1bc12ba985b8335a82c648bdd0 15721
test software.amazon.awssdk:aws-core:2.54.2@jar \
c991709ecc534c20936394f2cdb44243db3b62bb7b89c3db6c51ffc59411a6ee 203596
test software.amazon.awssdk:checksums-spi:2.54.2@jar \
e077d6011b4a7b191662467bc1e60fe0de50a40ed0e6b4ce2b30d9d3abbe90ae 8043
test software.amazon.awssdk:checksums:2.54.2@jar \
9723c92010530e795e5418563332c29d89e2250b395258ec2d377e2c046cc477 72562
test software.amazon.awssdk:http-client-spi:2.54.2@jar \
c90bcca41bf109015def94e23ccb3d0e9b55227affdaec0f3f1ab2ac2f4b58f3 93676
test software.amazon.awssdk:s3:2.54.2@jar \
f52a79a2b8462f27a03eaa410005f453a72e672b588877f7b3d1b7969a13f09f 4370988
test software.amazon.awssdk:sdk-core:2.54.2@jar \
e30fea4b8db14c1a5d65f4cc8679f4f5323e21b6ddf98a61b541014ec126236e 1102601
test software.amazon.awssdk:utils:2.54.2@jar \
5739fe61937f17842c2f655dd7c6b09fa3a59f2e876125d9d5f8b305b9e406b0 253354
test tools.jackson.core:jackson-core:3.2.2@jar \
93d9090b8c505b2f942ad85dd5821e8c401bfbafafff11708a3fbe2ef9da18ca 606047
test tools.jackson.core:jackson-databind:3.2.2@jar \
d27509f990d990fc779a01f3f612005ff6c67dc3bb0a720f5f4d9b2f5c713401 1978326
test tools.jackson.dataformat:jackson-dataformat-xml:3.2.2@jar \
627a1c904e866822c929fec9c4447068f78f3b94fa84d1fd1b47f6ce1e7dca4a 160747
"""


@contextmanager
def s3proxy(home: Path, *, key: str, secret: str) -> Iterator[str]:
    """Run S3Proxy with one user, and yield its URL once it answers.

    :param home: a directory for its buckets, settings and log; of a file system with extended attributes, in
        which S3Proxy keeps the ETags.
    """
    # Without them, S3Proxy stores objects all the same, and names no ETag.
    os.setxattr(home, "user.checked", b"")
    (home / "buckets").mkdir()
    url = f"http://127.0.0.1:{free_port()}"
    settings = {
        "jclouds.provider": "filesystem",
        "jclouds.filesystem.basedir": str(home / "buckets"),
        "s3proxy.endpoint": url,
        "s3proxy.authorization": "aws-v4",
        "s3proxy.identity": key,
        "s3proxy.credential": secret,
    }
    lines = [f"{name}={value}\n" for name, value in settings.items()]
    (home / "s3proxy.properties").write_text("".join(lines), encoding="utf-8")
    command = java_command(
        find_java(),
        _MAIN,
        ["--properties", str(home / "s3proxy.properties")],
        class_path=fetched(_JARS),
        argument_file=home / "java.args",
        properties={
            "org.slf4j.simpleLogger.defaultLogLevel": "warn",
            # S3Proxy sends its standard error to its logger.
            "org.slf4j.simpleLogger.logFile": "System.out",
        },
    )
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            command, env=clean_environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        policy = PollPolicy(first_s=0.1, factor=1, timeout_s=120)
        ready = wait_until(lambda: process.poll() is not None or _answers(url), policy)
        log_text = (home / "log").read_text(errors="replace")[-3000:]
        assert ready, f"S3Proxy does not answer at {url}: {log_text}"
        assert process.poll() is None, f"S3Proxy ended with exit code {process.poll()}: {log_text}"
        yield url
    finally:
        end_server(process, timeout_s=30)


def _answers(url: str) -> bool:
    """Return whether S3Proxy, and no other server, refuses a request without a signature."""
    try:
        with urllib.request.urlopen(url, timeout=5):
            return False
    except urllib.error.HTTPError as error:
        with error:
            return error.code == 403 and "x-amz-request-id" in error.headers
    except OSError:
        return False
