"""Helpers that several tests share. No module here is a test."""
