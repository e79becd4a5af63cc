"""The commands and the Python of docs/tutorial.md run, and print what the page says."""

import contextlib
import re
import shutil
import subprocess
import sys

import pytest

from tests.support.command import START, make_environment
from tests.support.paths import CORPUS, ROOT

PAGE = (ROOT / "docs/tutorial.md").read_text()
BLOCK = re.compile(r"```(console|python)\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the partitions and the command, in which the tutorial is followed."""
    folder = tmp_path_factory.mktemp("tutorial")
    kafka = folder / "kafka"
    kafka.mkdir()
    for source in (CORPUS / "kafka").glob("*-0"):
        shutil.copytree(source, kafka / source.name)
    programs = folder / "bin"
    programs.mkdir()
    command = programs / "wirescan"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{START}" "$@"\n')
    command.chmod(0o755)
    return folder


def list_commands(block):
    """Return the commands of a block, each with the lines that it prints."""
    commands = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [tuple(part.split("\n", 1)) for part in commands]


def run_command(command, folder):
    environment = make_environment(COLUMNS="200")
    environment["PATH"] = f"{folder / 'bin'}:{environment['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder / "kafka",
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), done.stderr  # 1: damage or a difference was found
    return done.stdout


def test_the_tutorial_is_true(folder, capsys):
    blocks = BLOCK.findall(PAGE)
    assert len(blocks) > 7
    for language, block in blocks:
        if language == "python":
            with contextlib.chdir(folder / "kafka"):
                exec(compile(block, "docs/tutorial.md", "exec"), {})
            assert capsys.readouterr().out
            continue
        for command, expected in list_commands(block):
            output = run_command(command, folder)
            pattern = re.escape(expected.strip()).replace(r"\.\.\.", ".*")
            assert re.fullmatch(pattern, output.strip(), re.DOTALL), f"{command}\n{output}"
