"""Sends each call of a client to the metastore that owns the databases and tables that the call names.

A database or table of another metastore has a local name at the gateway. The gateway resolves the name for
each call, so that engines see the remote without a link and without a refresh.
"""
