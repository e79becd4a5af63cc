"""Tests of wirescan.decoding."""
