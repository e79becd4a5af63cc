"""The blocks of docs/spark.md that have a name, and what runs them: as they stand there, but for ports and paths."""
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from peers.ports import free_ports

ROOT = Path(__file__).parents[2]
BLOCKS = dict(re.findall(r"<!-- (\w+) -->\n```\w+\n(.*?)```", (ROOT / "docs/spark.md").read_text(), re.DOTALL))
HEAP = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
PATIENCE = 600          # seconds: several tests may share a core


def block(name, **replaced):
    """A block in which some words are replaced; each of them has to be there."""
    text = BLOCKS[name]
    for word, other in replaced.items():
        assert word in text, f"{word} is not in the block {name}"
        text = text.replace(word, str(other))
    return text


def environment(folder, **more):
    """The environment of a shell whose python3 is this Python, and whose Spark stays on the loopback."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    if not (tools / "python3").exists():
        (tools / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        (tools / "python3").chmod(0o755)
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return plain | {"PATH": f"{tools}{os.pathsep}{plain['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1",
                    "PIP_NO_COMPILE": "1", "SPARK_LOCAL_HOSTNAME": "localhost", "SPARK_WORKER_DIR": str(folder / "work"), **more}


def shell(text, folder, **more):
    """Run a block; returns what it said. Fails with that, unless it ends well."""
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", text], cwd=folder, env=environment(folder, **more),
                          capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    return done.stdout


@contextmanager
def running(text, folder, port, **more):
    """A block that starts servers in the background, from when something listens on the port; they end with us."""
    with open(folder / "servers.log", "wb") as log:
        started = subprocess.Popen(["bash", "-euo", "pipefail", "-c", text + "\nwait\n"], cwd=folder, stdout=log,
                                   stderr=subprocess.STDOUT, env=environment(folder, **more), start_new_session=True)
    try:
        deadline = time.monotonic() + PATIENCE / 4
        while not listens(port):
            said = (folder / "servers.log").read_text(errors="replace")[-3000:]
            assert started.poll() is None and time.monotonic() < deadline, said
            time.sleep(0.2)
        yield
    finally:
        os.killpg(started.pid, signal.SIGTERM)
        try:
            started.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()


def listens(port):
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def free_port():
    port, = free_ports(1)
    return port
