"""Routes statements between clusters, which are compute and storage sites under one metastore."""
