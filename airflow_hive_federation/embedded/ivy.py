"""Downloads jars with the Ivy that pyspark contains, so that the user need not install a downloader.

Ivy runs outside of Spark, and resolves no dependencies: the module lists every artifact, none of them
transitively. The default root of its Maven resolver is Maven Central; a settings file sets a mirror, as for
``spark-submit``.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from airflow_hive_federation.embedded.lock import Artifact
from airflow_hive_federation.embedded.truststore import trust_flags
from airflow_hive_federation.errors import JarDownloadError
from airflow_hive_federation.runtime.cache import write_atomically
from airflow_hive_federation.runtime.environment import without_secrets
from airflow_hive_federation.runtime.java import Java

SETTINGS_VARIABLE = "AIRFLOW_HIVE_FEDERATION_IVY_SETTINGS"
RESOLVER_NAME = "central"


@dataclass(frozen=True, kw_only=True)
class IvyRun:
    """A running Ivy process, and the path of its log."""

    process: subprocess.Popen[bytes]
    log_path: Path


def start_ivy(
    java: Java, artifacts: Sequence[Artifact], *, destination: Path, work: Path, checksums: str = ""
) -> IvyRun:
    """Start an Ivy process that downloads the artifacts into ``destination`` as ``file_name``.

    A file gets its name only when it is complete (Ivy downloads to ``….part``).

    :param work: directory of this Ivy process alone, for its description files and its log.
    :param checksums: kinds of checksums to download. None by default: the lock has the checksums, and
        downloading them would double the requests.
    :raises JarDownloadError: if pyspark or its Ivy is missing.
    """
    work.mkdir(parents=True, exist_ok=True)
    settings, module, log_path = work / "settings.xml", work / "ivy.xml", work / "ivy.log"
    user_settings = os.environ.get(SETTINGS_VARIABLE)
    write_atomically(settings, settings_xml(destination, work, user_settings, checksums).encode())
    write_atomically(module, module_xml(artifacts).encode())
    command = [
        str(java.executable),
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        *trust_flags(),
        *proxy_flags(urllib.request.getproxies()),
        "-jar",
        str(ivy_jar()),
        "-settings",
        str(settings),
        "-ivy",
        str(module),
    ]
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            command,
            env=without_secrets(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=work,
        )
    return IvyRun(process=process, log_path=log_path)


def ivy_jar() -> Path:
    """Return the path of pyspark's Ivy.

    :raises JarDownloadError: if pyspark or its Ivy is missing.
    """
    spec = importlib.util.find_spec("pyspark")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for jar in sorted(Path(folder).glob("jars/ivy-*.jar")):
            return jar
    raise JarDownloadError(
        "pyspark's Ivy, which downloads the embedded metastore's jars, is missing.",
        remedy="Reinstall pyspark (pyspark-client alone has no jars).",
    )


def settings_xml(destination: Path, work: Path, user_settings: str | None, checksums: str = "") -> str:
    """Return Ivy's settings: jars go directly into ``destination``, and Ivy's own files into ``work``.

    The settings include a user's settings file for its resolvers and credentials, and use its default
    resolver.
    """
    caches = (
        f"  <caches defaultCacheDir={quoteattr(str(destination))}\n"
        f"          resolutionCacheDir={quoteattr(str(work / 'resolution'))}\n"
        '          artifactPattern="[artifact]-[revision](-[classifier]).[ext]"\n'
        '          ivyPattern=".ivy/[organisation]/[module]/ivy-[revision].xml"\n'
        '          dataFilePattern=".ivy/[organisation]/[module]/ivydata-[revision].properties"/>\n'
    )
    if user_settings:
        resolvers = f"  <include file={quoteattr(user_settings)}/>\n"
    else:
        resolvers = (
            f'  <settings defaultResolver="{RESOLVER_NAME}"/>\n'
            "  <resolvers>\n"
            f'    <ibiblio name="{RESOLVER_NAME}" m2compatible="true" usepoms="false"'
            f' useMavenMetadata="false" checksums="{checksums}"/>\n'
            "  </resolvers>\n"
        )
    return f"<ivysettings>\n{resolvers}{caches}</ivysettings>\n"


def module_xml(artifacts: Sequence[Artifact]) -> str:
    """Return the Ivy module that depends on exactly these artifacts, none of them transitively."""
    lines = [
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">',
        '  <info organisation="airflow-hive-federation" module="embedded"/>',
        '  <configurations><conf name="default"/></configurations>',
        "  <dependencies>",
    ]
    for artifact in artifacts:
        classifier = f" m:classifier={quoteattr(artifact.classifier)}" if artifact.classifier else ""
        lines.append(
            f"    <dependency org={quoteattr(artifact.group)} name={quoteattr(artifact.name)}"
            f' rev={quoteattr(artifact.version)} transitive="false" conf="default-&gt;*">'
            f'<artifact name={quoteattr(artifact.name)} type="{artifact.extension}"'
            f' ext="{artifact.extension}"{classifier}/></dependency>'
        )
    lines += ["  </dependencies>", "</ivy-module>", ""]
    return "\n".join(lines)


def proxy_flags(proxies: dict[str, str]) -> list[str]:
    """Return the JVM flags for the machine's proxies (``HTTPS_PROXY`` and similar variables).

    The flags leave out a proxy's user and password, because every user of the machine can read them. An Ivy
    settings file can set such a proxy.
    """
    flags = []
    for scheme in ("https", "http"):
        parsed = urllib.parse.urlsplit(proxies.get(scheme, ""))
        if parsed.hostname:
            flags.append(f"-D{scheme}.proxyHost={parsed.hostname}")
            flags.append(f"-D{scheme}.proxyPort={parsed.port or (443 if parsed.scheme == 'https' else 80)}")
    if flags and proxies.get("no"):
        hosts = [host.strip() for host in proxies["no"].split(",") if host.strip()]
        patterns = [f"*{host}" if host.startswith(".") else host for host in hosts]
        flags.append("-Dhttp.nonProxyHosts=" + "|".join(patterns))
    return flags
