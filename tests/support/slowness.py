"""How much longer work may take than in an ordinary build."""

import os

# The sanitizers' build takes several times as long.
SLOWNESS = 10 if "ASAN_OPTIONS" in os.environ else 1
