"""Serves the gateway's clients over gRPC; the modules import grpcio, which the extra ``grpc`` installs."""
