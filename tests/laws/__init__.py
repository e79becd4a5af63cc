"""Laws that hold for every format, and the costs of hostile bytes.

Start with `laws.py`. `packages.py` declares each protocol package to the laws.
"""
