"""Calls of the metastore in Hive's terms, a mixin a subject; :class:`MetastoreClient` has them all."""
