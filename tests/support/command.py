"""Runs the command `wirescan` in this process, and says how to start it in another one."""

from __future__ import annotations

import json
import os
from pathlib import Path

from click.testing import CliRunner, Result

import wirescan
from wirescan.cli.main import main

# The command as it is installed: `python -m wirescan` has another name.
START = "from wirescan.__main__ import start; start()"


def make_environment(**variables: str) -> dict[str, str]:
    """Return the environment for a process that imports this wirescan."""
    return os.environ | {"PYTHONPATH": str(Path(wirescan.__file__).parents[1]), **variables}


def run(*arguments: object, input: bytes | None = None) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], input=input)


def parse_lines(result: Result) -> list[dict]:
    return [json.loads(line) for line in result.stdout.splitlines()]
