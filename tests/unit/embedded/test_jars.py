"""The downloaders share the jars; errors name the jars that do not come."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

from airflow_hive_federation.embedded.ivy import ivy_jar, module_xml, proxy_flags, settings_xml
from airflow_hive_federation.embedded.jars import failure, shares
from airflow_hive_federation.embedded.lock import METASTORE, Artifact


def artifact(name: str, size_bytes: int = 1, classifier: str = "") -> Artifact:
    return Artifact(
        jar_set=METASTORE,
        group="g",
        name=name,
        version="1",
        classifier=classifier,
        sha256="0" * 64,
        size_bytes=size_bytes,
    )


def test_one_big_jar_keeps_one_downloader_busy_while_the_others_take_the_rest() -> None:
    big, rest = artifact("big", 90_000_000), [artifact(f"j{n}", 1_000_000) for n in range(10)]
    dealt = shares([*rest, big], 3)
    assert [big] in dealt
    assert sorted(len(share) for share in dealt) == [1, 5, 5]
    assert sorted((jar for share in dealt for jar in share), key=str) == sorted([big, *rest], key=str)


def test_fewer_jars_than_downloaders_leave_no_empty_share() -> None:
    assert shares([artifact("a")], 3) == [[artifact("a")]]


def test_no_network_has_a_remedy() -> None:
    error = failure(
        [artifact("a"), artifact("b")], [], "x\n  Server access error at url u (UnknownHostException)"
    )
    assert "g:a:1@jar and 1 more" in str(error)
    assert "Connect this machine to the network once" in str(error)


def test_the_error_of_an_unknown_authority_has_a_remedy() -> None:
    error = failure(
        [artifact("a")], [], "Server access error at url u (SSLHandshakeException: PKIX path building)"
    )
    assert "SSL_CERT_FILE" in str(error)


def test_a_full_disk_is_an_error_that_names_the_place() -> None:
    error = failure([artifact("a")], [], "impossible to copy: java.io.IOException: No space left on device")
    assert "AIRFLOW_HIVE_FEDERATION_CACHE" in str(error)


def test_wrong_bytes_are_distinguished_from_none() -> None:
    error = failure([], [artifact("a")], "")
    assert "g:a:1@jar differs from the lock" in str(error)
    assert error.artifacts == ["g:a:1@jar"]


def test_ivys_module_names_every_artifact_and_nothing_transitive() -> None:
    root = ET.fromstring(module_xml([artifact("a"), artifact("b", classifier="src")]))
    dependencies = root.findall("./dependencies/dependency")
    assert [dependency.get("name") for dependency in dependencies] == ["a", "b"]
    assert {dependency.get("transitive") for dependency in dependencies} == {"false"}
    published = root.find("./dependencies/dependency[@name='b']/artifact")
    assert published is not None
    assert published.get("{http://ant.apache.org/ivy/maven}classifier") == "src"


def test_ivys_settings_name_no_address_and_take_the_users() -> None:
    ours = settings_xml(Path("/to"), Path("/work"), None)
    assert "http" not in ours
    ET.fromstring(ours)
    theirs = settings_xml(Path("/to"), Path("/work"), "/home/ann/ivy & co.xml")
    include = ET.fromstring(theirs).find("include")
    assert include is not None
    assert include.get("file") == "/home/ann/ivy & co.xml"


def test_proxies_reach_java_without_their_password() -> None:
    flags = proxy_flags({"https": "http://ann:secret@proxy:3128", "no": ".corp, localhost"})
    assert flags == [
        "-Dhttps.proxyHost=proxy",
        "-Dhttps.proxyPort=3128",
        "-Dhttp.nonProxyHosts=*.corp|localhost",
    ]
    assert proxy_flags({}) == []


def test_pyspark_brings_ivy() -> None:
    assert ivy_jar().name.startswith("ivy-")
