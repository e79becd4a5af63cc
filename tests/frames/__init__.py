"""Tests of wirescan.frames."""
