"""The number of examples of the generated tests."""

import os


def read_example_count(default: int) -> int:
    """Return the environment variable WIRESCAN_EXAMPLES, or `default`.

    The defaults are small, so that the default run is short. The nightly run sets the variable.
    """
    return int(os.environ.get("WIRESCAN_EXAMPLES", default))
