"""Tests of wirescan.cli."""
