"""Serves Hive metastores to clients over Thrift and gRPC, under rules, aliases and other names."""
