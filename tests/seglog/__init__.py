"""Tests of wirescan.seglog."""
