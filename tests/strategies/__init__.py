"""Hypothesis strategies, one module per room: good bytes, and ways to damage them."""
