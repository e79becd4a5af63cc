"""Tests of wirescan.export."""
