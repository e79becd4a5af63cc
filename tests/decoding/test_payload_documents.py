"""The examples of docs/payloads.md run, and its table lists the decoders."""

import contextlib
import re
import shlex

import pytest

from tests.support.command import run
from tests.support.paths import ORDERS, ROOT
from wirescan.decoding.notation import MAKERS

PAGE = (ROOT / "docs/payloads.md").read_text()


def find_blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("block", find_blocks("python"))
def test_the_python_runs(block, tmp_path):
    code = block.replace("/var/lib/kafka/orders-0", str(ORDERS))
    with contextlib.chdir(tmp_path):
        exec(compile(code, "docs/payloads.md", "exec"), {"__name__": "__main__"})


def test_the_commands_run(tmp_path):
    commands = [line for block in find_blocks("sh") for line in block.splitlines()]
    assert commands
    with contextlib.chdir(tmp_path):
        for command in commands:
            words = shlex.split(command.replace("/var/lib/kafka/orders-0", str(ORDERS)))
            result = run(*words[1:])
            assert result.exit_code == 0, result.output


def test_the_table_lists_the_decoders():
    table = PAGE.partition("| text | payload |")[2].partition("\n\n")[0]
    texts = re.findall(
        r"`([^`]+)`", " ".join(line.split("|")[1] for line in table.splitlines()[2:])
    )
    assert {text.partition(":")[0] for text in texts} == set(MAKERS)
