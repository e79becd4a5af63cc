"""The command `wirescan`, or `python -m wirescan`; what it needs is imported late, so that Ctrl-C is told there too."""
from __future__ import annotations

import sys
from typing import NoReturn


def start() -> NoReturn:
    """Run the command and exit with its code; see `wirescan.cli`."""
    try:
        from wirescan.cli import main
        main(prog_name="wirescan")
        code, message = 0, ""
    except KeyboardInterrupt:
        code, message = 130, "\nwirescan: interrupted"
    except ImportError as error:                # of click, where the extra "cli" was not installed
        code, message = 2, f"wirescan: {error}; the command needs wirescan[cli]"
    if message and sys.stderr is not None:
        print(message, file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    start()
