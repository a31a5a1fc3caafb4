"""The gateway's gRPC front; its modules import grpcio, which the extra ``grpc`` brings."""
