"""Tests of wirescan.lumberjack."""
