"""Loads libhdfs, the C interface of Hadoop's Java client, and the JVM in which it runs.

pyarrow's binding of libhdfs has no ``hsync``, writes three replicas by default, whatever ``dfs.replication``
is, and hides most of Java's errors behind one number. So this module calls the C functions itself.

The JVM starts in the process that first opens a file system, and at no import: a JVM does not survive a fork,
and Airflow forks the processes of tasks.
"""

from __future__ import annotations

import ctypes
import os
import re
import shlex
import subprocess
import threading
import zipfile
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any, ClassVar

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.runtime.environment import without_secrets

#: The variable for the directory of ``libhdfs.so``, as pyarrow names it.
DIRECTORY = "ARROW_LIBHDFS_DIR"
#: The variable for options of the JVM, which libhdfs reads.
JVM_OPTIONS = "LIBHDFS_OPTS"
#: Otherwise the JVM replaces Python's handlers of SIGTERM and SIGINT, by which Airflow ends a task.
_NO_SIGNALS = "-Xrs"
_CLASSPATH = "CLASSPATH"
_CLASSPATH_TIMEOUT_S = 60.0
#: Classes without which libhdfs fails, or ends the process by a signal, and the jars of Apache with them.
_CLASSES = {
    "org/apache/hadoop/fs/FileSystem.class": "hadoop-common",
    "org/apache/hadoop/hdfs/DistributedFileSystem.class": "hadoop-hdfs-client",
    "org/apache/commons/lang3/exception/ExceptionUtils.class": "commons-lang3",
}
_POINTER, _TEXT, _INT, _LONG = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32, ctypes.c_int64
_SIGNATURES: dict[str, tuple[type[ctypes._SimpleCData[Any]] | None, ...]] = {
    "hdfsNewBuilder": (_POINTER,),
    "hdfsBuilderSetNameNode": (None, _POINTER, _TEXT),
    "hdfsBuilderSetUserName": (None, _POINTER, _TEXT),
    "hdfsBuilderSetKerbTicketCachePath": (None, _POINTER, _TEXT),
    "hdfsBuilderSetForceNewInstance": (None, _POINTER),
    "hdfsBuilderConfSetStr": (_INT, _POINTER, _TEXT, _TEXT),
    "hdfsBuilderConnect": (_POINTER, _POINTER),
    "hdfsOpenFile": (_POINTER, _POINTER, _TEXT, _INT, _INT, ctypes.c_int16, _INT),
    "hdfsAvailable": (_INT, _POINTER, _POINTER),
    "hdfsPread": (_INT, _POINTER, _POINTER, _LONG, _POINTER, _INT),
    "hdfsWrite": (_INT, _POINTER, _POINTER, _TEXT, _INT),
    "hdfsHSync": (_INT, _POINTER, _POINTER),
    "hdfsCloseFile": (_INT, _POINTER, _POINTER),
    "hdfsGetLastExceptionRootCause": (_TEXT,),
    "hdfsGetLastExceptionStackTrace": (_TEXT,),
}
#: The class of an error that the NameNode has sent, in Java's trace.
_REMOTE = re.compile(r"RemoteException\((?P<java>[\w.$]+)\)")


class Library:
    """The library of this process."""

    _loaded: ClassVar[Library | None] = None
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, library: ctypes.CDLL, path: Path) -> None:
        self._pid = os.getpid()
        self._functions = {}
        for name, (returned, *arguments) in _SIGNATURES.items():
            try:
                function = library[name]
            except AttributeError as error:
                raise ConfigurationError(
                    f"{path} has no function {name}.",
                    remedy="Take libhdfs of Hadoop 3.",
                    path=str(path),
                ) from error
            function.restype = returned
            function.argtypes = [kind for kind in arguments if kind is not None]
            self._functions[name] = function

    @classmethod
    def load(cls, config_dir: str, environ: MutableMapping[str, str] = os.environ) -> Library:
        """Return the library; the first call loads it, after a check of all that it needs.

        :param config_dir: directory of Hadoop's files, which the JVM reads as well; empty for none.
        :param environ: variables, which get the JVM's class path and options.
        :raises ConfigurationError: if libhdfs, the JVM or a class of Hadoop is missing, or if this process is
            the fork of one that has loaded the library.
        """
        with cls._lock:
            if cls._loaded is None:
                path, machine = library_path(environ), jvm_path(environ)
                class_path = hadoop_class_path(environ)
                refuse_missing_classes(class_path)
                environ[_CLASSPATH] = ":".join([config_dir, class_path] if config_dir else [class_path])
                options = environ.get(JVM_OPTIONS, "")
                if _NO_SIGNALS not in shlex.split(options):
                    environ[JVM_OPTIONS] = f"{options} {_NO_SIGNALS}".strip()
                try:
                    # libhdfs finds the JVM among the libraries that are loaded.
                    ctypes.CDLL(str(machine), mode=ctypes.RTLD_GLOBAL)
                    cls._loaded = cls(ctypes.CDLL(str(path), use_errno=True), path)
                except OSError as error:
                    raise ConfigurationError(
                        f"libhdfs cannot be loaded: {error}.",
                        remedy=f"Check {path} and {machine}: both must be for this machine's processor.",
                        path=str(path),
                    ) from error
            cls._loaded.refuse_fork()
            return cls._loaded

    def refuse_fork(self) -> None:
        """Refuse calls in a process that was forked after the start of the JVM, where they would hang.

        :raises ConfigurationError: if this process is such a fork.
        """
        if self._pid != os.getpid():
            raise ConfigurationError(
                f"libhdfs was used in process {self._pid}, from which this one was forked, and its JVM does "
                "not survive a fork.",
                remedy="Use HDFS in the parent only after the fork, start this process anew (spawn), or use "
                'hdfs-native: leave the storage option "client" out.',
            )

    def call(self, name: str, *arguments: object) -> int:
        """Call a function that returns a number or a pointer; null is 0.

        :raises ConfigurationError: see :meth:`refuse_fork`.
        """
        self.refuse_fork()
        return self._functions[name](*arguments) or 0

    def last_error(self) -> tuple[str, str]:
        """Return class, without the package, and message of the last error of Java in this thread.

        Both are empty if libhdfs has failed without one.
        """
        java, _, reason = self._text("hdfsGetLastExceptionRootCause").partition(": ")
        if java == "RemoteException" and (
            named := _REMOTE.search(self._text("hdfsGetLastExceptionStackTrace"))
        ):
            java = named["java"].rpartition(".")[2].rpartition("$")[2]
        return java, reason

    def _text(self, name: str) -> str:
        text: bytes | None = self._functions[name]()
        return (text or b"").decode(errors="replace")


def library_path(environ: Mapping[str, str]) -> Path:
    """Return the path of ``libhdfs.so``.

    :raises ConfigurationError: if it is missing.
    """
    home, named = environ.get("HADOOP_HOME"), environ.get(DIRECTORY)
    directory = Path(named) if named else Path(home, "lib", "native") if home else None
    return _existing(
        [directory / "libhdfs.so"] if directory else [],
        "libhdfs.so",
        f"Install Hadoop's native libraries, and set HADOOP_HOME, or {DIRECTORY} to the library's directory.",
    )


def jvm_path(environ: Mapping[str, str]) -> Path:
    """Return the path of the JVM's library.

    :raises ConfigurationError: if it is missing.
    """
    home = environ.get("JAVA_HOME")
    found = (
        [Path(home, "lib", "server", "libjvm.so"), *Path(home).glob("jre/lib/*/server/libjvm.so")]
        if home
        else []
    )
    return _existing(
        found, "libjvm.so", "Install a Java runtime that your Hadoop supports, and set JAVA_HOME to it."
    )


def hadoop_class_path(environ: Mapping[str, str]) -> str:
    """Return the class path: CLASSPATH, or that of the command ``hadoop`` in HADOOP_HOME.

    :raises ConfigurationError: if there is neither, or the command fails.
    """
    if named := environ.get(_CLASSPATH):
        return named
    home = environ.get("HADOOP_HOME")
    if not home:
        raise ConfigurationError(
            "libhdfs needs the jars of Hadoop, and neither CLASSPATH nor HADOOP_HOME is set.",
            remedy="Set HADOOP_HOME, or CLASSPATH to the output of: hadoop classpath --glob.",
        )
    command = [f"{home}/bin/hadoop", "classpath", "--glob"]
    try:
        done = subprocess.run(
            command,
            env=without_secrets(environ),
            capture_output=True,
            text=True,
            timeout=_CLASSPATH_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigurationError(
            f"The class path of Hadoop cannot be had: {error}.",
            remedy=f"Check that this runs: {shlex.join(command)}. Or set CLASSPATH to what it should print.",
        ) from error
    return done.stdout.strip()


def refuse_missing_classes(class_path: str) -> None:
    """Refuse a class path without the classes that libhdfs needs.

    :raises ConfigurationError: if a class is missing.
    """
    missing = dict(_CLASSES)
    # The likely jars come first: a class path of Hadoop has hundreds.
    for jar in sorted(_jars(class_path.split(":")), key=_is_unlikely):
        if not missing:
            return
        try:
            with zipfile.ZipFile(jar) as content:
                names = set(content.namelist())
        except (OSError, zipfile.BadZipFile):
            continue
        missing = {name: holder for name, holder in missing.items() if name not in names}
    if missing:
        raise ConfigurationError(
            f"libhdfs needs jars that CLASSPATH does not have: {', '.join(sorted(missing.values()))}.",
            remedy="Set CLASSPATH to the output of: hadoop classpath --glob. With Hadoop's shaded jars "
            "(hadoop-client-api, hadoop-client-runtime), add commons-lang3.",
        )


def _jars(entries: Iterable[str]) -> Iterator[Path]:
    for entry in filter(None, entries):
        path = Path(entry)
        if path.name == "*":
            yield from path.parent.glob("*.jar")
        elif path.suffix == ".jar":
            yield path


def _is_unlikely(jar: Path) -> bool:
    return not jar.name.startswith(
        ("hadoop-common", "hadoop-hdfs-client", "hadoop-client-api", "commons-lang3")
    )


def _existing(candidates: Iterable[Path], name: str, remedy: str) -> Path:
    looked = [str(path) for path in candidates]
    for path in looked:
        if Path(path).is_file():
            return Path(path)
    where = f" (not at {', '.join(looked)})" if looked else ""
    raise ConfigurationError(f"libhdfs cannot be used: {name} is missing{where}.", remedy=remedy)
