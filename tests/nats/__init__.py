"""Tests of wirescan.nats."""
