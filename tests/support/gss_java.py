"""SASL's mechanism GSSAPI for the package's own Java, which has Kerberos but not this module."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from airflow_hive_federation.embedded.jars import metastore_jars
from airflow_hive_federation.runtime.java import Java, _machine_homes, find_java, probe
from tests.support.debian import install

#: Java's variable for options of the JVMs that are started with it.
_VARIABLE = "JDK_JAVA_OPTIONS"
_MODULE = "jdk.security.jgss"
#: Options of the JVMs that use the mechanism.
OPTIONS = (
    "--add-exports=java.security.sasl/com.sun.security.sasl.util=ALL-UNNAMED",
    "--add-exports=java.base/sun.security.util=ALL-UNNAMED",
)


def give_mechanism(directory: Path) -> None:
    """Put the mechanism into a directory of the class path, for the package's Java with :data:`OPTIONS`.

    The mechanism is seven classes over Java's own Kerberos, the same in Java 17 and 21.
    """
    if _has_module(find_java()):
        return
    groovy = next(jar for jar in metastore_jars(find_java()) if jar.name.startswith("groovy-all"))
    command = [str(java_with_module().executable), "--add-opens=java.base/java.lang=ALL-UNNAMED"]
    command += ["-cp", str(groovy), "groovy.ui.GroovyMain"]
    command += [str(Path(__file__).with_suffix(".groovy")), str(directory)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)


@contextmanager
def java_options(*options: str) -> Iterator[None]:
    """Start JVMs with options while the block runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(_VARIABLE, " ".join(options))
        yield


def java_with_module() -> Java:
    """Return a Java of the machine that has the mechanism; install it where that is possible."""
    if (java := _findjava_with_module()) is None:
        install("openjdk-17-jre-headless")
        java = _findjava_with_module()
    if java is None:
        pytest.skip(f"needs a Java of 17 to 21 with {_MODULE} (package openjdk-17-jre-headless)")
    return java


def _findjava_with_module() -> Java | None:
    javas = [probe(home) for home in _machine_homes(os.environ)]
    fitting = [java for java in javas if java is not None and java.version in range(17, 22)]
    return next((java for java in fitting if _has_module(java)), None)


def _has_module(java: Java) -> bool:
    command = [str(java.executable), "--list-modules"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return f"{_MODULE}@" in done.stdout
