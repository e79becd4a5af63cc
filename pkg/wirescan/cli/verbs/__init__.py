"""The verbs of the command `wirescan`, one module each, imported when they are used.

Start with `scan.py`. The modules import everything else of the package, but not
`wirescan.cli.main`.
"""
