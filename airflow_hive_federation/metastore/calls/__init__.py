"""Holds the metastore's calls, one mixin per subject; :class:`MetastoreClient` inherits from all of them."""
