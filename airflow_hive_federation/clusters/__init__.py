"""Clusters: compute and storage sites under one metastore, and the routing of statements between them."""
