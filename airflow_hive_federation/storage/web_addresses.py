"""Finds the web page on which a store shows a directory, where the store's address is known for certain."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote
from xml.etree import ElementTree

from airflow_hive_federation.storage.filesystem import Location, options_for, parse_location
from airflow_hive_federation.storage.options import StorageOptions, StorageValue

#: Addresses of the services of AWS in these regions, and of other stores that speak S3, are others.
_OTHER_CONSOLES = ("cn-", "us-gov-", "us-iso")
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


def web_address(uri: str, options: StorageOptions | None = None) -> str:
    """Return the URL of the page that shows a directory; empty if the store has none that is known.

    S3 has one at AWS itself, Google's store has one, and HDFS has the NameNode's, if Hadoop's settings have
    its address (``dfs.namenode.http-address``) and there is one NameNode.

    :param options: storage options (fsspec).
    :raises ConfigurationError: ``uri`` is no URI.
    """
    location = parse_location(uri)
    pages = {"s3": _of_s3, "gs": _of_google, "hdfs": _of_hdfs}
    page = pages.get(location.scheme)
    return page(location, options_for(uri, options)) if page else ""


def _of_s3(location: Location, options: Mapping[str, StorageValue]) -> str:
    client = options.get("client_kwargs")
    client = client if isinstance(client, Mapping) else {}
    region = str(client.get("region_name") or os.environ.get("AWS_REGION") or "")
    elsewhere = options.get("endpoint_url") or client.get("endpoint_url")
    elsewhere = elsewhere or any(os.environ.get(name) for name in _ENDPOINTS)
    if elsewhere or region.startswith(_OTHER_CONSOLES):
        return ""
    prefix = quote(location.path.lstrip("/") + "/", safe="")
    return f"https://console.aws.amazon.com/s3/buckets/{quote(location.authority)}?prefix={prefix}"


def _of_google(location: Location, _: Mapping[str, StorageValue]) -> str:
    return f"https://console.cloud.google.com/storage/browser/{location.authority}{quote(location.path)}"


def _of_hdfs(location: Location, options: Mapping[str, StorageValue]) -> str:
    settings = {**dict(_files(options)), **{name: str(value) for name, value in options.items()}}
    authority = location.authority or settings.get("fs.defaultFS", "").partition("://")[2].partition("/")[0]
    # Only its clients know the active NameNode of a name service.
    if not authority or f"dfs.ha.namenodes.{authority}" in settings:
        return ""
    is_https = settings.get("dfs.http.policy", "").upper() == "HTTPS_ONLY"
    host, _, port = settings.get(f"dfs.namenode.http{'s' * is_https}-address", "").rpartition(":")
    if not host or not port.isdecimal():
        return ""
    if host == "0.0.0.0":  # noqa: S104 - Hadoop's way to write the NameNode's own host
        host = authority.partition(":")[0]
    return f"http{'s' * is_https}://{host}:{port}/explorer.html#{quote(location.path)}"


def _files(options: Mapping[str, StorageValue]) -> Iterator[tuple[str, str]]:
    """Yield the settings in Hadoop's files, which need not be there."""
    home = os.environ.get("HADOOP_HOME", "")
    directory = str(
        options.get("config_dir") or os.environ.get("HADOOP_CONF_DIR") or (home and f"{home}/etc/hadoop")
    )
    for name in ("core-site.xml", "hdfs-site.xml") if directory else ():
        try:
            root = ElementTree.parse(Path(directory, name)).getroot()  # noqa: S314 - the administrator's own
        except (OSError, ElementTree.ParseError):
            continue
        for element in root.iter("property"):
            yield (element.findtext("name") or "").strip(), (element.findtext("value") or "").strip()
