"""The commands and the Python of the tutorial and the how-tos run, and print what they say."""

import contextlib
import re
import shutil
import subprocess
import sys

import pytest

from tests.support.command import START, make_environment
from tests.support.fake_broker import Server
from tests.support.fake_producer import ProducerCluster
from tests.support.paths import CORPUS, ROOT
from wirescan import kafka

# A block, and the output of a block of Python if the page shows it.
BLOCK = re.compile(r"```(console|python)\n(.*?)```\n(?:\n```\n(.*?)```\n)?", re.DOTALL)


# The folder of tests/corpus in which a page is followed, and the number of its blocks.
PAGES = {"tutorial": ("kafka", 9), "how-to": (".", 20)}


@pytest.fixture
def folder(tmp_path):
    """A folder with a part of the corpus and the command, in which a page is followed."""
    folder = tmp_path
    kafka = folder / "kafka"
    kafka.mkdir()
    for source in (CORPUS / "kafka").glob("*-0"):
        shutil.copytree(source, kafka / source.name)
    for name in ("lumberjack", "thrift", "kafka-tiered-storage", "pcap"):
        (folder / name).symlink_to(CORPUS / name)
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


def run_command(command, folder, programs):
    environment = make_environment(COLUMNS="200")
    environment["PATH"] = f"{programs}:{environment['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode in (0, 1), done.stderr  # 1: damage or a difference was found
    return done.stdout


def check_output(code, output, expected):
    """Compare an output with what a page shows, where `...` stands for anything."""
    pattern = re.escape(expected.strip()).replace(r"\.\.\.", ".*")
    assert re.fullmatch(pattern, output.strip(), re.DOTALL), f"{code}\n{output}"


@pytest.fixture
def broker():
    """A broker with the empty topics `orders` and `restored`."""
    cluster = ProducerCluster(1)
    for topic in ("orders", "restored"):
        cluster.add_topic(topic, 1)
    with Server(cluster) as server:
        yield cluster, server.bootstrap


def check_restored(cluster, topic):
    """Compare a topic of the broker with the segments that it was restored from."""
    data = b"".join(entry for _, _, entry in cluster.topics[topic][0].entries)
    log = kafka.open_log(CORPUS / "kafka/orders-0", isolation="read_committed")
    columns = ["timestamp", "key", "value", "headers"]
    restored, expected = (
        kafka.records(batches).to_arrow(columns=columns) for batches in (kafka.scan(data), log)
    )
    assert restored.equals(expected)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_that_is_followed_is_true(page, folder, broker, capsys):
    cluster, address = broker
    start, count = PAGES[page]
    blocks = BLOCK.findall((ROOT / f"docs/{page}.md").read_text())
    assert len(blocks) == count
    for language, block, shown in blocks:
        if language == "python":
            with contextlib.chdir(folder / start):
                code = block.replace("localhost:9092", address)
                exec(compile(code, f"docs/{page}.md", "exec"), {})
            output = capsys.readouterr().out
            assert output
            check_output(block, output, shown or "...")
            continue
        for command, expected in list_commands(block):
            command = command.replace("localhost:9092", address)
            output = run_command(command, folder / start, folder / "bin")
            check_output(command, output, expected)
    if page == "how-to":
        check_restored(cluster, "orders")
        check_restored(cluster, "restored")
