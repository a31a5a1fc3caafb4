"""Federation in the gateway: each call goes to the metastore that owns what the call names.

A database or table of another metastore has a local name here. It is resolved for each call, so that engines
see it without a link and without a refresh.
"""
