"""Runs real Hive metastores on this machine, for demos, development and tests.

``metastore.EmbeddedMetastore`` starts a metastore, and ``sql.HiveSql`` runs Hive's own SQL engine on it.
"""
