"""The report of lines that no test reaches."""
