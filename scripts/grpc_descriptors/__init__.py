"""Makes the descriptor sets of the gRPC front."""
