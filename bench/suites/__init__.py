"""One file for each part of the benchmarks. Its `run` measures and returns the report's text."""
