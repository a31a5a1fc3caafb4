"""Reads the registry of clusters: names, roots in file systems, Spark connections, metastores.

Hive's parameters keep their names (design "Hive across Multiple Data Centers")::

    {
      "hive.cluster.properties": {
        "C1": {"fileSystem": "hdfs://c1/warehouse", "jobTracker": "spark_c1"},
        "C2": {"fileSystem": "s3://c2/warehouse", "jobTracker": "spark_c2", "metastore":
        "thrift://gate-c2:9083"}
      },
      "hive.default.cluster.name": "C1",
      "hive.use.default.cluster": true
    }

The document is the value of an Airflow variable or the content of a file. A metastore may hold the three
parameters in its own configuration instead, where ``get_config_value`` reads them;
``hive.cluster.properties`` is then the text of the inner object. One metastore has one registry. Parameters
of its databases cannot hold the registry, because every user who may alter a database could then move a
cluster.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from types import MappingProxyType

from airflow_hive_federation.errors import (
    ClusterRegistryError,
    ConfigurationError,
    FileVanishedError,
    UnknownClusterError,
)
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.model import bounded_json
from airflow_hive_federation.storage.filesystem import canonical, is_below, local_path, reading, refuse_hidden
from airflow_hive_federation.storage.options import StorageOptions

PROPERTIES = "hive.cluster.properties"
DEFAULT_NAME = "hive.default.cluster.name"
USE_DEFAULT = "hive.use.default.cluster"

#: Cluster names become parts of parameter names, directories and statements.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_KEYS = ("fileSystem", "jobTracker", "metastore")
_FORM = (
    f'{{"{PROPERTIES}": {{"C1": {{"fileSystem": "hdfs://c1/warehouse", "jobTracker": "spark_c1"}}}}, '
    f'"{DEFAULT_NAME}": "C1", "{USE_DEFAULT}": true}}'
)
_TRUTHS = {"true": True, "false": False}


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """A compute and storage site.

    :param name: the name, as in ``USE CLUSTER``.
    :param root: the URI of the directory that holds the cluster's data (``fileSystem``).
    :param spark_conn_id: the id of the Airflow connection that runs Spark there (``jobTracker``).
    :param metastore: the URI of the metastore, or of a gateway's front, for the cluster's engines; ``None``
        for the common metastore.
    """

    name: str
    root: str
    spark_conn_id: str
    metastore: str | None = None


@dataclass(frozen=True)
class ClusterRegistry:
    """The configured clusters.

    :param clusters: the clusters by name.
    :param default: the cluster of tables without cluster metadata; ``None`` if no cluster is configured.
    :param use_default: true if such tables belong to it without an assignment.
    """

    clusters: Mapping[str, Cluster] = field(default_factory=dict)
    default: str | None = None
    use_default: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "clusters", MappingProxyType(dict(self.clusters)))

    def __bool__(self) -> bool:
        return bool(self.clusters)

    def __iter__(self) -> Iterator[Cluster]:
        return iter(self.clusters.values())

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (dict(self.clusters), self.default, self.use_default)

    def cluster(self, name: str) -> Cluster:
        """Return the cluster of a name, whatever its case.

        :raises UnknownClusterError: no cluster has that name.
        """
        match = self.clusters.get(name) or next(
            (cluster for cluster in self if cluster.name.lower() == name.lower()), None
        )
        if match is None:
            others = f"Use {' or '.join(self.clusters)}, or add" if self.clusters else "Add"
            raise UnknownClusterError(
                f"There is no cluster {name!r}.",
                remedy=f"{others} the cluster to {PROPERTIES}.",
                cluster=name,
            )
        return match

    def default_cluster(self) -> Cluster:
        """Return the default cluster.

        :raises UnknownClusterError: no cluster is configured.
        """
        if self.default is None:
            raise UnknownClusterError(
                "No cluster is configured.",
                remedy=f"Set {PROPERTIES} and {DEFAULT_NAME}, or name the file or Airflow variable that has "
                "them (clusters, or --clusters).",
                cluster=None,
            )
        return self.cluster(self.default)

    def cluster_at(self, location: str) -> Cluster | None:
        """Return the cluster whose root is above a location; ``None`` if no root is."""
        return next((cluster for cluster in self if is_below(location, cluster.root)), None)

    def to_json(self) -> dict[str, object]:
        """Return the document that :func:`read_registry` reads."""
        properties = {
            cluster.name: {
                "fileSystem": cluster.root,
                "jobTracker": cluster.spark_conn_id,
                **({"metastore": cluster.metastore} if cluster.metastore else {}),
            }
            for cluster in self
        }
        return {PROPERTIES: properties, DEFAULT_NAME: self.default, USE_DEFAULT: self.use_default}


def read_registry(document: str | Mapping[str, object], *, origin: str) -> ClusterRegistry:
    """Read and check a registry.

    :param document: JSON, or the equivalent object; see the docstring of the module.
    :param origin: the origin of the document, for error messages.
    :raises ClusterRegistryError: the document is malformed or names an unknown default, or two roots are
        equal or nested.
    """
    values = _object(document, origin, origin)
    unknown = sorted(set(values) - {PROPERTIES, DEFAULT_NAME, USE_DEFAULT})
    if unknown:
        raise _malformed(origin, f"has keys that are not known: {', '.join(unknown)}")
    properties = _object(values.get(PROPERTIES, {}), origin, PROPERTIES)
    clusters = {name: _cluster(name, value, origin) for name, value in properties.items()}
    _refuse_same_names(clusters, origin)
    _refuse_nested(clusters.values(), origin)
    return ClusterRegistry(clusters, _default(values, clusters, origin), _use_default(values, origin))


def registry_of_file(uri: str, options: StorageOptions | None = None) -> ClusterRegistry:
    """Read the registry in a file.

    :param uri: the URI or path of the JSON file.
    :raises ClusterRegistryError: the file does not exist; see also :func:`read_registry`.
    :raises StorageError: the file cannot be read.
    """
    try:
        with reading(uri, options) as file:
            text = file.read().decode("utf-8", "replace")
    except FileVanishedError as error:
        raise ClusterRegistryError(
            f"The registry of clusters, {uri}, does not exist.",
            remedy="Correct its path, or create the file.",
            reason="missing",
        ) from error
    return read_registry(text, origin=uri)


def registry_of_metastore(client: MetastoreClient) -> ClusterRegistry:
    """Read the registry in a metastore's configuration; empty if the configuration contains none.

    :raises ClusterRegistryError: see :func:`read_registry`.
    :raises MetastoreError: the metastore does not answer.
    """
    return _of_parameters(lambda name: client.call("get_config_value", name, ""), str(client.uri))


def _of_parameters(value: Callable[[str], str | None], origin: str) -> ClusterRegistry:
    properties = value(PROPERTIES)
    if not properties:
        return ClusterRegistry()
    document: dict[str, object] = {PROPERTIES: properties}
    for name in (DEFAULT_NAME, USE_DEFAULT):
        if parameter := value(name):
            document[name] = parameter
    return read_registry(document, origin=f"the configuration of {origin}")


def _object(value: object, origin: str, member: str) -> dict[str, object]:
    if isinstance(value, str):
        try:
            value = bounded_json.loads(value, object_pairs_hook=_once)
        except ValueError as error:
            raise _malformed(origin, f"has invalid JSON{_inside(member, origin)}: {error}") from error
    if not isinstance(value, Mapping):
        raise _malformed(origin, f"has no JSON object{_inside(member, origin)}")
    return dict(value)


def _inside(member: str, origin: str) -> str:
    return "" if member == origin else f" in {member}"


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members: dict[str, object] = {}
    for name, value in pairs:
        if name in members:
            raise ValueError(f"the key {name!r} occurs twice")
        members[name] = value
    return members


def _cluster(name: str, value: object, origin: str) -> Cluster:
    if not _NAME.fullmatch(name):
        problem = f"has the cluster {name!r}; names are a letter, then at most 63 letters, digits and _"
        raise _malformed(origin, problem, cluster=name)
    if not isinstance(value, Mapping):
        raise _malformed(origin, f"has no JSON object for cluster {name}", cluster=name)
    unknown = sorted(set(value) - set(_KEYS))
    if unknown:
        raise _malformed(
            origin, f"has unknown keys for cluster {name}: {', '.join(map(str, unknown))}", cluster=name
        )
    for key in _KEYS[:2]:
        if not isinstance(value.get(key), str) or not value[key]:
            raise _malformed(origin, f"has no text {key} for cluster {name}", cluster=name)
    metastore = value.get("metastore")
    if metastore is not None and (not isinstance(metastore, str) or "://" not in metastore):
        raise _malformed(origin, f"has a metastore for cluster {name} that is not a URI", cluster=name)
    try:
        root = _root(value["fileSystem"])
        refuse_hidden(root, f"the root of cluster {name}", remedy="Choose another directory.")
    except ConfigurationError as error:
        raise _malformed(
            origin, f"has no usable fileSystem for cluster {name}: {error}", cluster=name
        ) from error
    return Cluster(name=name, root=root, spark_conn_id=value["jobTracker"], metastore=metastore)


def _root(uri: str) -> str:
    """Return a root in its canonical form, under the scheme that engines know: for ``s3a`` not ``s3``."""
    root = canonical(uri)
    if local_path(root) is not None:
        return root
    return f"{uri.partition(':')[0].lower()}:{root.partition(':')[2]}"


def _refuse_same_names(clusters: Mapping[str, Cluster], origin: str) -> None:
    spellings: dict[str, str] = {}
    for name in clusters:
        spelling = spellings.setdefault(name.lower(), name)
        if spelling != name:
            raise _malformed(
                origin, f"has clusters whose names differ in case only: {spelling}, {name}", cluster=name
            )


def _refuse_nested(clusters: Iterable[Cluster], origin: str) -> None:
    for first, second in combinations(clusters, 2):
        if is_below(first.root, second.root) or is_below(second.root, first.root):
            raise ClusterRegistryError(
                f"Clusters {first.name} and {second.name} of {origin} share or nest their roots, "
                f"{first.root} and {second.root}: the cluster of a file would be ambiguous.",
                remedy="Give each cluster a directory of its own.",
                reason="nested_roots",
                cluster=second.name,
                other=first.name,
            )


def _default(values: Mapping[str, object], clusters: Mapping[str, Cluster], origin: str) -> str | None:
    default = values.get(DEFAULT_NAME)
    if default is None and not clusters:
        return None
    names = {name.lower(): name for name in clusters}
    default_name = names.get(default.lower()) if isinstance(default, str) else None
    if default_name is None:
        clause = "no default cluster" if default is None else f"the default cluster {default!r}"
        raise ClusterRegistryError(
            f"The registry of clusters, {origin}, has {clause}; configured are: "
            f"{', '.join(clusters) or 'none'}.",
            remedy=f"Set {DEFAULT_NAME} to one of them.",
            reason="unknown_default",
            cluster=default,
        )
    return default_name


def _use_default(values: Mapping[str, object], origin: str) -> bool:
    value = values.get(USE_DEFAULT, True)
    if isinstance(value, str):
        value = _TRUTHS.get(value.strip().lower())
    if not isinstance(value, bool):
        raise _malformed(origin, f"has a value of {USE_DEFAULT} that is neither true nor false")
    return value


def _malformed(origin: str, problem: str, **facts: object) -> ClusterRegistryError:
    return ClusterRegistryError(
        f"The registry of clusters, {origin}, {problem}.",
        remedy=f"Write it in this form: {_FORM}",
        reason="malformed",
        **facts,
    )
