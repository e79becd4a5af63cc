"""Errors that are planted one by one. The tests that an error names must notice it."""
