"""Peers: bytes made by the real programs, and our reading of them compared with theirs."""
