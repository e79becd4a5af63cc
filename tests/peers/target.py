"""The command line of the programs that record a corpus."""

import argparse
import shutil
from pathlib import Path


def make_parser(description: str | None, default: Path) -> argparse.ArgumentParser:
    """Return a parser of the directory to fill, which is `default` if it is not named."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "target", nargs="?", type=Path, default=default, help="the directory to fill"
    )
    return parser


def clear_target(description: str | None, default: Path) -> Path:
    """Return the directory that the command line names, or `default`. Its old files are removed."""
    target = make_parser(description, default).parse_args().target
    shutil.rmtree(target, ignore_errors=True)
    return target
