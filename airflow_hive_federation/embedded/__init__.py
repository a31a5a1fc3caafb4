"""Real Hive metastores on this machine, for demos, development and tests.

``metastore.EmbeddedMetastore`` starts one, ``sql.HiveSql`` is Hive's own SQL engine on top of it.
"""
