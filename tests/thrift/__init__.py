"""Tests of wirescan.thrift."""
