"""The lossy link does to packets what it is told, and leaves nothing behind."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.paths import ROOT

from . import lossy_link
from .capture import Capture, split_pcap
from .lossy_link import LossyLink, find_obstacle, send_bytes
from .relay import ADDRESSES, DEVICE, Conditions, Direction

pytestmark = pytest.mark.peers
DATA = random.Random(1).randbytes(200_000)
BAD = Conditions(loss=0.05, burst=2, duplicate=0.05, late=0.1)
RECORD_HEADER = 16
HOLD = """
import time
from tests.peers.lossy_link import LossyLink
from tests.peers.relay import Conditions
with LossyLink(Conditions()) as link:
    print(link.process.pid, flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True, scope="module")
def needs_link():
    obstacle = find_obstacle()
    if obstacle:
        pytest.skip(obstacle)


def list_root() -> str:
    """Return the devices, addresses and routes of this namespace."""
    commands = [["-o", "address"], ["-4", "route", "show", "table", "all"], ["-6", "route"]]
    return "".join(subprocess.check_output(["ip", *words], text=True) for words in commands)


def is_running(process: int) -> bool:
    return Path(f"/proc/{process}").exists()


def await_end(process: int) -> None:
    until = time.monotonic() + 20
    while is_running(process):
        assert time.monotonic() < until, "the relay still runs"
        time.sleep(0.01)


@pytest.mark.parametrize(("family", "mtu"), [(4, 576), (4, 1500), (6, 1280), (6, 1500)])
def test_every_byte_arrives_in_small_packets(family, mtu, tmp_path):
    file = tmp_path / "link.pcap"
    with (
        LossyLink(BAD._replace(family=family, mtu=mtu, seed=mtu)) as link,
        link.far.listen(4000) as listener,
        Capture(file, [4000], end=link.near),
    ):
        assert listener.getsockname()[:2] == (ADDRESSES[family][1], 4000)
        assert send_bytes(link, listener, DATA) == DATA
    sizes = [len(record.data) - RECORD_HEADER for record in split_pcap(file.read_bytes())]
    assert max(sizes) == mtu
    assert len(sizes) > len(DATA) / mtu
    for counts in link.to_server, link.to_client:
        assert min(counts) > 0
    assert link.to_server.received > len(DATA) / mtu + link.to_server.lost / 2


def test_a_good_link_loses_nothing():
    with LossyLink(Conditions()) as link, link.far.listen() as listener:
        assert send_bytes(link, listener, DATA) == DATA
    assert link.to_server[1:] == link.to_client[1:] == (0, 0, 0)


def test_the_seed_decides_which_packets_are_impaired():
    def choose(seed: str) -> list[list[float]]:
        direction = Direction(0, 0, BAD, seed)
        return [direction.choose_delays() for _ in range(2000)]

    assert choose("a") == choose("a") != choose("b")
    delays = choose("a")
    # A burst of up to two packets begins at 5% of them.
    assert 0.05 < delays.count([]) / len(delays) < 0.10
    assert 0.03 < sum(len(times) == 2 for times in delays) / len(delays) < 0.07
    assert 0.07 < sum(times[:1] > [BAD.delay] for times in delays) / len(delays) < 0.13
    assert all(
        BAD.delay <= each <= BAD.delay + BAD.late_delay for times in delays for each in times
    )


def test_the_root_namespace_has_nothing_of_the_link():
    before = list_root()
    with LossyLink(Conditions()) as link:
        assert list_root() == before
        assert DEVICE not in before
        for end in link.near, link.far:
            listing = end.call(subprocess.check_output, ["ip", "-o", "address"], text=True)
            assert f"{DEVICE} " in listing
            assert end.address in listing
        with socket.socket() as outside, pytest.raises(OSError):
            outside.bind((link.near.address, 0))
    assert not is_running(link.process.pid)
    assert list_root() == before


def test_the_errors_of_functions_are_raised():
    with LossyLink(Conditions()) as link, pytest.raises(ConnectionRefusedError):
        link.near.call(socket.create_connection, (link.far.address, 1), timeout=20)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_errors_in_the_block_end_the_relay(error):
    descriptors = os.listdir("/proc/self/fd")
    with pytest.raises(error), LossyLink(Conditions()) as link:
        raise error
    assert not is_running(link.process.pid)
    assert os.listdir("/proc/self/fd") == descriptors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_signals_end_the_relay_with_its_user(number):
    command = [sys.executable, "-c", HOLD]
    # The terminal sends an interrupt to the whole group of processes.
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, process_group=0
    ) as user:
        relay = int(user.stdout.readline())
        assert is_running(relay)
        os.killpg(user.pid, number)
        assert user.wait(20)
    await_end(relay)


def test_a_relay_that_fails_is_reported():
    with pytest.raises(RuntimeError, match="the relay failed"), LossyLink(Conditions()) as link:
        link.process.kill()
    with pytest.raises(OSError, match=r"^OSError: ip: .*mtu"), LossyLink(Conditions(mtu=1 << 20)):
        pass


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("os.geteuid", lambda: 1000, "a lossy link needs root"),
        ("shutil.which", lambda name: None, "a lossy link needs the command ip"),
        ("TUN", Path("/dev/net/missing"), "a lossy link needs /dev/net/missing"),
        ("RELAY", Path("/dev/null"), "a lossy link is impossible here: the relay ended"),
    ],
)
def test_obstacles_are_named(name, value, reason, monkeypatch):
    monkeypatch.setattr(f"{lossy_link.__name__}.{name}", value)
    assert find_obstacle().startswith(reason)
    monkeypatch.undo()
    assert find_obstacle() is None
