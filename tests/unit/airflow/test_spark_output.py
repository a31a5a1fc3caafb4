"""The log of a task shows what its Spark job did, and not what each job prints."""

from __future__ import annotations

import pytest

from airflow_hive_federation.hooks.spark_output import is_routine

ROUTINE = """WARNING: Using incubator modules: jdk.incubator.vector
26/11/27 14:42:18 WARN NativeCodeLoader: Unable to load native-hadoop library for your platform...
Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties
26/11/27 14:42:27 INFO SparkContext: Running Spark version 4.2.0
Setting Spark log level to "WARN".
Setting default log level to "WARN".
To adjust logging level use sc.setLogLevel(newLevel). For SparkR, use setLogLevel(newLevel).
:: loading settings :: url = jar:file:/jars/ivy-2.5.3.jar!/org/apache/ivy/core/settings/ivysettings.xml
\tfound org.postgresql#postgresql;42.7.4 in central
\tat org.apache.spark.SparkContext.<init>(SparkContext.scala:421)
    at java.base/java.lang.Thread.run(Thread.java:840)
\t... 12 more
"""
SHOWN = """26/11/27 14:42:18 WARN TaskSetManager: Lost task 0.0 in stage 0.0 (TID 0)
26/11/27 14:42:18 ERROR SparkContext: Error initializing SparkContext.
java.lang.OutOfMemoryError: Java heap space
Caused by: java.net.ConnectException: Connection refused
Traceback (most recent call last):
Submitting application_1_7 to ResourceManager
at the end of the script
"""


@pytest.mark.parametrize("line", ROUTINE.splitlines())
def test_routine(line: str) -> None:
    assert is_routine(line)


@pytest.mark.parametrize("line", SHOWN.splitlines())
def test_shown(line: str) -> None:
    assert not is_routine(line)
