"""How the descriptor sets of the gRPC front are made."""
