"""Tests of wirescan.core."""
