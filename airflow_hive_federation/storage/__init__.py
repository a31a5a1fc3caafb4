"""File systems by URI: opening, listing, copying, digests."""
