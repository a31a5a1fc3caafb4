"""The two translated encodings of the gRPC front: the service of ours and Hive's own."""
