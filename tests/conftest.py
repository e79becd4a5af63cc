"""Generated tests take the same examples in every run; WIRESCAN_RANDOM=1 looks for new ones."""
import os
import signal

from hypothesis import settings

settings.register_profile("wirescan", deadline=None, derandomize="WIRESCAN_RANDOM" not in os.environ, database=None)
settings.load_profile("wirescan")

# A shell starts what is in the background with interrupts ignored, and Python leaves it at that: tests that interrupt
# themselves would wait in vain.
signal.signal(signal.SIGINT, signal.default_int_handler)
