"""Free ports of 127.0.0.1 for servers that cannot choose one themselves."""
import itertools
import os
import socket

# The system's own choices, for clients' connections and for port 0, begin at 32768. Nothing takes a port below by chance
# between the call here and the start of the server.
FIRST, COUNT = 20_000, 12_000
WORKERS = 4                 # of pytest-xdist: each has a range of its own
IN_RANGE = COUNT // WORKERS


def _candidates():
    """The ports of this worker's range, again and again; where they begin differs between processes."""
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


def free_ports(count: int) -> list[int]:
    """So many different ports, which no other call in this process has given for a long time."""
    tried = itertools.islice(_CANDIDATES, IN_RANGE)
    found = list(itertools.islice(filter(is_free, tried), count))
    if len(found) < count:
        raise OSError(f"only {len(found)} of {count} ports are free between {FIRST} and {FIRST + COUNT}")
    return found
