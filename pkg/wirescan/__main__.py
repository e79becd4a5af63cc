"""The command `wirescan`, or `python -m wirescan`.

It imports `wirescan.cli.main` inside `start`, so that Ctrl-C during the import is reported like
later.
"""

from __future__ import annotations

import sys
from typing import NoReturn

USAGE_ERROR = 2
INTERRUPTED = 130  # 128 and the number of SIGINT, as shells report it


def start() -> NoReturn:
    """Run the command and exit with its code. `wirescan.cli.main` describes it."""
    code = 0
    message = ""
    try:
        from wirescan.cli.main import main

        main(prog_name="wirescan")
    except KeyboardInterrupt:
        code = INTERRUPTED
        message = "\nwirescan: interrupted"
    except ImportError as error:  # click is missing where the extra "cli" is not installed
        code = USAGE_ERROR
        hint = "" if "pip install" in str(error) else ": pip install 'wirescan[cli]'"
        message = f"wirescan: {error}{hint}"
    if message and sys.stderr is not None:
        print(message, file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    start()
