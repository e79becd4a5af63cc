"""Seeded data that looks like real data, written once and kept on disk."""
