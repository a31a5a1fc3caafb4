"""Spark's own Ivy as the downloader: pyspark carries it, so nothing needs to be installed by hand.

Ivy runs outside of Spark, without resolving anything: every artifact is named, nothing is transitive. Its
Maven resolver's default root is Maven Central; a mirror is set as for ``spark-submit``, by a settings file.
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
    """One Ivy process at work, and where it writes what it has to say."""

    process: subprocess.Popen[bytes]
    log_path: Path


def start_ivy(
    java: Java, artifacts: Sequence[Artifact], *, destination: Path, work: Path, checksums: str = ""
) -> IvyRun:
    """Start one Ivy that puts the artifacts into ``destination`` under their ``file_name``.

    A file appears under its name only when it is complete (Ivy downloads to ``….part``).

    :param work: directory of this Ivy alone, for its description files and its log.
    :param checksums: kinds of checksum to ask the repository for. None by default: ours are in the lock,
        and asking doubles the requests.
    :raises JarDownloadError: when pyspark or its Ivy is not there.
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
    """Return the Ivy that pyspark carries."""
    spec = importlib.util.find_spec("pyspark")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for jar in sorted(Path(folder).glob("jars/ivy-*.jar")):
            return jar
    raise JarDownloadError(
        "pyspark's Ivy, which fetches the embedded metastore's jars, is not there.",
        remedy="reinstall pyspark (pyspark-client alone has no jars).",
    )


def settings_xml(destination: Path, work: Path, user_settings: str | None, checksums: str = "") -> str:
    """Return Ivy's settings: files go flat into ``destination``, Ivy's own notes into ``work``.

    A user's settings file is included for its resolvers and credentials; its default resolver is used.
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
    """Return the JVM flags for the machine's proxies (``HTTPS_PROXY`` and the like).

    A proxy's user and password are left out: flags are visible to everybody on the machine. Such a proxy is
    set in an Ivy settings file.
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
