"""Tests of wirescan.reading."""
