"""The search for a Java runtime takes the first that fits."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from airflow_hive_federation.errors import JavaNotFoundError
from airflow_hive_federation.runtime import java
from airflow_hive_federation.runtime.java import Java, find_java, parse_version, spark_java_home

TEMURIN_21 = """openjdk version "21.0.8" 2025-07-15 LTS
OpenJDK Runtime Environment Temurin-21.0.8+9 (build 21.0.8+9-LTS)
OpenJDK 64-Bit Server VM Temurin-21.0.8+9 (build 21.0.8+9-LTS, mixed mode)"""
DEBIAN_17 = """openjdk version "17.0.15" 2025-04-15
OpenJDK Runtime Environment (build 17.0.15+6-Debian-1deb12u1)
OpenJDK 64-Bit Server VM (build 17.0.15+6-Debian-1deb12u1, mixed mode, sharing)"""
ORACLE_8 = """java version "1.8.0_202"
Java(TM) SE Runtime Environment (build 1.8.0_202-b08)"""
SEMERU_21 = """openjdk version "21.0.4" 2024-07-16 LTS
IBM Semeru Runtime Open Edition 21.0.4.1 (build 21.0.4+7-LTS)
Eclipse OpenJ9 VM 21.0.4.1"""
TEMURIN_25 = TEMURIN_21.replace("21.0.8", "25.0.1")


def fake_java(home: Path, output: str, modules: str = "java.base@21") -> Path:
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(
        f"#!/bin/sh\n[ \"$1\" = --list-modules ] && echo '{modules}' && exit\n"
        f"cat >&2 <<'END'\n{output}\nEND\n"
    )
    executable.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def _only_what_the_test_offers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No Java of this machine takes part."""
    original = java._candidate_homes

    def candidates(environ: dict[str, str]) -> list[Path]:
        return [home for home in original(environ) if home.is_relative_to(tmp_path)]

    monkeypatch.setattr(java, "_candidate_homes", candidates)
    monkeypatch.setattr(java, "_package_homes", lambda: [tmp_path / "package"])
    monkeypatch.setenv("AIRFLOW_HIVE_FEDERATION_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("output", "version", "vendor"),
    [
        (TEMURIN_21, 21, "Eclipse Temurin"),
        (DEBIAN_17, 17, "OpenJDK"),
        (ORACLE_8, 8, "Oracle"),
        (SEMERU_21, 21, "IBM Semeru"),
    ],
)
def test_version_and_vendor_are_read(output: str, version: int, vendor: str) -> None:
    assert parse_version(Path("/j"), output) == Java(home=Path("/j"), version=version, vendor=vendor)


def test_what_is_not_java_has_no_version() -> None:
    assert parse_version(Path("/j"), "command not found") is None


def test_a_fitting_java_home_wins(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "mine", TEMURIN_21)
    fake_java(tmp_path / "package", TEMURIN_21)
    assert find_java({"JAVA_HOME": str(home)}).home == home


@pytest.mark.parametrize("unfit", [DEBIAN_17, TEMURIN_25, SEMERU_21])
def test_an_unfit_java_home_gives_way_to_the_package(tmp_path: Path, unfit: str) -> None:
    home = fake_java(tmp_path / "mine", unfit)
    fake_java(tmp_path / "package", TEMURIN_21)
    assert find_java({"JAVA_HOME": str(home)}).home == tmp_path / "package"


def test_the_java_of_the_path_is_found_through_its_link(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", TEMURIN_21)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "bin")}).home == home


def test_without_a_fitting_java_the_error_names_what_there_is(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "old", DEBIAN_17)
    with pytest.raises(JavaNotFoundError, match=r"OpenJDK 17 in .*old.*\[embedded\]") as raised:
        find_java({"JAVA_HOME": str(home)})
    assert raised.value.found == [str(home)]


def test_spark_takes_a_complete_jdk_as_it_is(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", DEBIAN_17, modules="jdk.incubator.vector@17")
    assert spark_java_home({"JAVA_HOME": str(home)}) == home


def test_spark_gets_a_wrapper_that_drops_the_flag_of_the_missing_module(tmp_path: Path) -> None:
    package = fake_java(tmp_path / "package", TEMURIN_21)
    wrapper = spark_java_home({})
    assert wrapper.is_relative_to(tmp_path / "cache")
    (package / "bin" / "java").write_text('#!/bin/sh\nfor a do echo "<$a>"; done\n')
    output = subprocess.run(
        [wrapper / "bin" / "java", "-Da=b c", "--add-modules=jdk.incubator.vector", "", "Main"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert output.stdout.splitlines() == ["<-Da=b c>", "<>", "<Main>"]


def test_spark_without_java_is_an_error() -> None:
    with pytest.raises(JavaNotFoundError, match="17 or 21"):
        spark_java_home({})
