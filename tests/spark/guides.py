"""Runs the named blocks of docs/spark.md. Only ports and paths are replaced."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

from tests.peers.ports import find_free_ports
from tests.support.paths import ROOT

BLOCKS = dict(
    re.findall(r"<!-- (\w+) -->\n```\w+\n(.*?)```", (ROOT / "docs/spark.md").read_text(), re.DOTALL)
)
TIMEOUT = 600  # seconds; several tests may share a core


def find_block(name, **replaced):
    """Return a block with some words replaced. The block must contain each of them."""
    text = BLOCKS[name]
    for word, other in replaced.items():
        assert word in text, f"{word} is not in the block {name}"
        text = text.replace(word, str(other))
    return text


def make_environment(folder, **more):
    """Return the environment of a shell. Its python3 is this Python. Spark uses the loopback."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    if not (tools / "python3").exists():
        (tools / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        (tools / "python3").chmod(0o755)
    plain = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SPARK_", "PYSPARK_"))
    }
    return plain | {
        "PATH": f"{tools}{os.pathsep}{plain['PATH']}",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PIP_COMPILE": "0",
        "SPARK_LOCAL_HOSTNAME": "localhost",
        "SPARK_WORKER_DIR": str(folder / "work"),
        **more,
    }


def run_block(text, folder, **more):
    """Run a block. Return its output. The status of the block must be 0."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=folder,
        env=make_environment(folder, **more),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    return done.stdout


@contextmanager
def run_servers(text, folder, port, **more):
    """Run a block that starts servers in the background.

    The context begins when a server listens on the port. All servers end with it.
    """
    with open(folder / "servers.log", "wb") as log:
        servers = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", text + "\nwait\n"],
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=make_environment(folder, **more),
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + TIMEOUT / 4
        while not is_listening(port):
            output = (folder / "servers.log").read_text(errors="replace")[-3000:]
            assert servers.poll() is None, output
            assert time.monotonic() < deadline, output
            time.sleep(0.2)
        yield
    finally:
        os.killpg(servers.pid, signal.SIGTERM)
        try:
            servers.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(servers.pid, signal.SIGKILL)
            servers.wait()


def is_listening(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def find_free_port():
    (port,) = find_free_ports(1)
    return port
