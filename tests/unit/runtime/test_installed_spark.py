"""The pyspark that is installed has the files of one version, or is refused."""

from __future__ import annotations

import importlib.metadata
import pickle

import pytest

from airflow_hive_federation.errors import SparkEnvironmentError
from airflow_hive_federation.runtime.installed_spark import (
    InstalledSpark,
    installed_spark,
    refuse_mixed_pyspark,
)


@pytest.mark.parametrize(
    ("pyspark", "client"),
    [("4.2.0", "4.2.0"), ("4.1.1", None), ("3.5.7", None), (None, "4.1.2"), (None, None)],
)
def test_one_version_passes(pyspark: str | None, client: str | None) -> None:
    refuse_mixed_pyspark(InstalledSpark(pyspark=pyspark, client=client, provider=None))


@pytest.mark.parametrize(
    ("pyspark", "client", "remedy"),
    [
        ("4.2.0", "4.1.2", "'pyspark==4.1.2' 'pyspark-client==4.1.2'"),
        ("3.5.7", "4.2.0", "'pyspark==3.5.7' 'apache-airflow-providers-apache-spark<6'"),
    ],
)
def test_two_versions_are_refused_with_a_remedy(pyspark: str, client: str, remedy: str) -> None:
    with pytest.raises(SparkEnvironmentError) as caught:
        refuse_mixed_pyspark(InstalledSpark(pyspark=pyspark, client=client, provider="6.1.0"))
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.pyspark, error.client) == (pyspark, client)
    assert remedy in error.remedy


def test_what_is_installed() -> None:
    versions = installed_spark()
    assert versions.pyspark == importlib.metadata.version("pyspark")
    assert versions.provider == importlib.metadata.version("apache-airflow-providers-apache-spark")
