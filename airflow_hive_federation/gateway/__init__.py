"""The gateway: fronts that clients of a metastore call, and the handler that asks the metastores."""
