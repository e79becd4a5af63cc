"""Tests of wirescan.kafka."""
