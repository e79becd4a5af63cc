"""The program of a lossy link: it makes the two ends, and forwards packets between them.

    python relay.py '{"family": 4, "mtu": 1500, ...}'       # as root; the fields of Conditions

lossy_link.py starts it. Each end is a network namespace of its own, with one TUN device. Once the
link works, the program prints the descriptors of the namespaces in this process, as JSON. It ends
when its standard input ends. Then it prints the counts of both directions.

The namespaces and devices have no names outside of this process. So they disappear with it, however
it ends.
"""

import contextlib
import ctypes
import fcntl
import heapq
import json
import os
import random
import select
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

DEVICE = "link0"
# Ranges for tests of networks: RFC 2544 and RFC 5180.
ADDRESSES = {4: ("198.18.0.1", "198.18.0.2"), 6: ("2001:2::1", "2001:2::2")}
CLONE_NEWNET = 0x40000000  # sched.h
TUNSETIFF = 0x400454CA  # linux/if_tun.h
IFF_TUN = 0x0001
IFF_NO_PI = 0x1000  # packets begin with the IP header
LARGEST_PACKET = 1 << 16
RTO_MAX = Path("/proc/sys/net/ipv4/tcp_rto_max_ms")  # of the namespace of the process
COUNTS = ("received", "lost", "duplicated", "late")


class Conditions(NamedTuple):
    """What a link does to packets. Shares of packets are between 0 and 1.

    family: 4 or 6. mtu: of both devices, in bytes. seed: of the choice among packets. The n-th
    packet of a direction always has the same fate. loss: packets that are lost, and so may be the
    next ones: `burst` is the most in a row. duplicate: packets that arrive twice. late: packets
    that later ones overtake. delay: seconds that every packet takes. late_delay: the most seconds
    that a late packet, or the second of two, takes in addition. rto_min: milliseconds that the
    kernel waits at least before it sends a segment again. rto_max: the most; kernels before Linux
    6.15 ignore it.
    """

    family: int = 4
    mtu: int = 1500
    seed: int = 0
    loss: float = 0.0
    burst: int = 1
    duplicate: float = 0.0
    late: float = 0.0
    delay: float = 0.001
    late_delay: float = 0.01
    rto_min: int = 50
    rto_max: int = 1000


class Direction:
    """Packets from one device to the other one."""

    def __init__(self, source: int, target: int, conditions: Conditions, seed: str):
        self.source = source
        self.target = target
        self.counts = dict.fromkeys(COUNTS, 0)
        self._conditions = conditions
        self._chance = random.Random(seed)
        self._still_lost = 0

    def choose_delays(self) -> list[float]:
        """Return after how many seconds the next packet arrives. A lost packet never arrives."""
        conditions = self._conditions
        chance = self._chance
        is_lost, is_late, is_double = (
            chance.random() < share
            for share in (conditions.loss, conditions.late, conditions.duplicate)
        )
        more = [chance.uniform(0, conditions.late_delay) for _ in range(2)]
        burst = chance.randint(1, conditions.burst)
        self.counts["received"] += 1
        if is_lost:
            self._still_lost = max(self._still_lost, burst)
        if self._still_lost:
            self._still_lost -= 1
            self.counts["lost"] += 1
            return []
        self.counts["late"] += is_late
        self.counts["duplicated"] += is_double
        delays = [conditions.delay + is_late * more[0]]
        if is_double:
            delays.append(conditions.delay + more[1])
        return delays


def call_libc(name: str, *arguments: int) -> None:
    """Call a function of the C library. Raises OSError if it fails."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


def make_end(conditions: Conditions, own: str, peer: str) -> tuple[int, int]:
    """Make a namespace with a device. Return the descriptors of both.

    The process is in the new namespace afterwards.
    """
    call_libc("unshare", CLONE_NEWNET)
    with contextlib.suppress(OSError):
        RTO_MAX.write_text(str(conditions.rto_max))
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), IFF_TUN | IFF_NO_PI))
    bits = {4: 32, 6: 128}[conditions.family]
    # Without these, the kernel sends packets of its own before those of the programs.
    device_options, address_options = (
        ("addrgenmode none", "nodad") if conditions.family == 6 else ("", "")
    )
    # The kernel would make a route of its own for a network of two addresses.
    commands = f"""
        link set lo up
        link set {DEVICE} mtu {conditions.mtu} {device_options} up
        addr add {own}/{bits} dev {DEVICE} {address_options}
        route add {peer}/{bits} dev {DEVICE} src {own} rto_min {conditions.rto_min}ms
    """
    ip = ["ip", f"-{conditions.family}", "-batch", "-"]
    completed = subprocess.run(ip, input=commands, capture_output=True, text=True)
    if completed.returncode:
        lines = (completed.stdout + completed.stderr).split("\n")
        raise OSError(f"ip: {' '.join(lines).strip()}")
    return os.open("/proc/self/ns/net", os.O_RDONLY), device


def forward(directions: list[Direction], until: int) -> None:
    """Forward packets until the descriptor `until` has an end of file."""
    by_source = {direction.source: direction for direction in directions}
    waiting: list[tuple[float, int, int, bytes]] = []  # a heap: time, number, target, packet
    number = 0
    while True:
        wait = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        ready, _, _ = select.select([*by_source, until], [], [], wait)
        if until in ready and not os.read(until, 1):
            return
        now = time.monotonic()
        for source in ready:
            direction = by_source.get(source)
            if direction is None:
                continue
            packet = os.read(source, LARGEST_PACKET)
            for delay in direction.choose_delays():
                number += 1
                heapq.heappush(waiting, (now + delay, number, direction.target, packet))
        while waiting and waiting[0][0] <= now:
            _, _, target, packet = heapq.heappop(waiting)
            os.write(target, packet)


def main() -> None:
    conditions = Conditions(**json.loads(sys.argv[1]))
    near, far = ADDRESSES[conditions.family]
    near_namespace, near_device = make_end(conditions, near, far)
    far_namespace, far_device = make_end(conditions, far, near)
    directions = [
        Direction(near_device, far_device, conditions, f"{conditions.seed} to server"),
        Direction(far_device, near_device, conditions, f"{conditions.seed} to client"),
    ]
    print(json.dumps([near_namespace, far_namespace]), flush=True)
    forward(directions, sys.stdin.fileno())
    print(json.dumps([direction.counts for direction in directions]))


if __name__ == "__main__":
    main()
