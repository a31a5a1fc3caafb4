"""Reads Hadoop's files and finds the addresses of NameNodes' web servers in them."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.storage.options import StorageValue

_FILES = ("core-site.xml", "hdfs-site.xml")
_PORTS = {"http": "9870", "https": "9871"}
#: An address of this host stands for all addresses of the NameNode's machine.
_ANY = "0.0.0.0"  # noqa: S104 - compared, not bound


@dataclass(frozen=True, kw_only=True)
class WebAddress:
    """The web server of a NameNode.

    :param scheme: ``http`` or ``https``.
    """

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"


def hadoop_settings(options: Mapping[str, StorageValue], environ: Mapping[str, str]) -> dict[str, str]:
    """Return Hadoop's settings: those of its files, replaced by those of storage options.

    :param options: the storage options of one store; ``config_dir`` names the directory of the files.
    :param environ: environment variables, which name that directory otherwise.
    :raises ConfigurationError: if a file is no XML.
    """
    settings: dict[str, str] = {}
    directory = options.get("config_dir") or configuration_directory(environ)
    for path in (Path(str(directory)) / name for name in _FILES) if directory else ():
        if path.is_file():
            settings.update(_read(path))
    settings.update({name: str(value) for name, value in options.items() if "." in name})
    return settings


def configuration_directory(environ: Mapping[str, str]) -> str:
    """Return the directory of Hadoop's files that the variables of Hadoop name; empty for none."""
    home = environ.get("HADOOP_HOME", "")
    return environ.get("HADOOP_CONF_DIR", "") or (home and f"{home}/etc/hadoop")


def web_addresses(authority: str, settings: Mapping[str, str]) -> list[WebAddress]:
    """Return the web servers of the NameNodes behind an authority. Pure.

    :param authority: host and port of a NameNode, or a name service; empty for ``fs.defaultFS``.
    :param settings: Hadoop's settings.
    :raises ConfigurationError: if an address is none.
    """
    authority = authority or settings.get("fs.defaultFS", "").rpartition("//")[2].rstrip("/")
    scheme = "https" if settings.get("dfs.http.policy", "").upper() == "HTTPS_ONLY" else "http"
    key = f"dfs.namenode.{scheme}-address"
    name_nodes = [name.strip() for name in settings.get(f"dfs.ha.namenodes.{authority}", "").split(",")]
    if any(name_nodes):
        keys = [f"{authority}.{name}" for name in name_nodes if name]
        return [
            _address(
                scheme,
                settings.get(f"{key}.{name}", ""),
                settings.get(f"dfs.namenode.rpc-address.{name}", "").partition(":")[0],
            )
            for name in keys
        ]
    host = authority.partition(":")[0]
    return [_address(scheme, settings.get(f"{key}.{authority}") or settings.get(key, ""), host)]


def _address(scheme: str, written: str, host: str) -> WebAddress:
    named, _, port = written.rpartition(":") if ":" in written else (written, "", "")
    port = port or _PORTS[scheme]
    chosen = host if named in {"", _ANY} else named
    if not chosen or not port.isdecimal():
        raise ConfigurationError(
            f"dfs.namenode.{scheme}-address is {written!r}, which names no web server of a NameNode.",
            remedy="Set it as host:port in hdfs-site.xml (HADOOP_CONF_DIR), or as a storage option.",
            setting=f"dfs.namenode.{scheme}-address",
        )
    return WebAddress(scheme=scheme, host=chosen, port=int(port))


def _read(path: Path) -> Iterator[tuple[str, str]]:
    try:
        root = ET.fromstring(path.read_bytes())  # noqa: S314 - the administrator's own file
    except ET.ParseError as error:
        raise ConfigurationError(
            f"{path} is no file of Hadoop's settings: {error}.",
            remedy="Correct it, or name another directory (HADOOP_CONF_DIR).",
            path=str(path),
        ) from error
    for element in root.iter("property"):
        name = (element.findtext("name") or "").strip()
        if name:
            yield name, (element.findtext("value") or "").strip()
