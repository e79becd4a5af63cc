"""Tests of wirescan.files."""
