"""Airflow provider that federates Hive metastores and replicates Hive databases."""

__version__ = "0.1.0"
