"""Hypothesis strategies, one module per package: good bytes, and damaged bytes."""
