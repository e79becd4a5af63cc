"""Generated tests take the same examples in every run; WIRESCAN_RANDOM=1 looks for new ones."""
import os

from hypothesis import settings

settings.register_profile("wirescan", deadline=None, derandomize="WIRESCAN_RANDOM" not in os.environ, database=None)
settings.load_profile("wirescan")
