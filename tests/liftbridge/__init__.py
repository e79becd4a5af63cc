"""Tests of wirescan.liftbridge."""
