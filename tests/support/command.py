"""Runs the command `wirescan` in this process and returns its output."""

from __future__ import annotations

import json

from click.testing import CliRunner, Result

from wirescan.cli.main import main


def run(*arguments: object, input: bytes | None = None) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], input=input)


def parse_lines(result: Result) -> list[dict]:
    return [json.loads(line) for line in result.stdout.splitlines()]
