"""Peers: tests that compare wirescan with the real programs of each protocol."""
