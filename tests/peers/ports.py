"""Free ports of 127.0.0.1 for servers that cannot choose a port themselves."""

import itertools
import os
import socket

# The system chooses ports from 32768 on, for clients and for port 0. So no other program takes one
# of the ports below by chance between the call here and the start of the server.
FIRST = 20_000
COUNT = 12_000
WORKERS = 4  # each worker of pytest-xdist has its own range
IN_RANGE = COUNT // WORKERS


def _candidates():
    """The ports of this worker's range, over and over.

    The first port depends on the process id.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
    first = FIRST + worker * IN_RANGE
    for step in itertools.count(os.getpid() * 97):
        yield first + step % IN_RANGE


_CANDIDATES = _candidates()


def is_free(port: int) -> bool:
    """Whether a server may listen on the port."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def find_free_ports(count: int) -> list[int]:
    """Return `count` different ports, which this process has not returned lately."""
    tried = itertools.islice(_CANDIDATES, IN_RANGE)
    ports = list(itertools.islice(filter(is_free, tried), count))
    if len(ports) < count:
        raise OSError(
            f"only {len(ports)} of {count} ports are free between {FIRST} and {FIRST + COUNT}"
        )
    return ports
