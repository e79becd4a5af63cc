"""The cache of programs that the peer tests download or build."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .cache import make_once

CALLS = 3


def test_calls_at_the_same_time_make_a_program_once(tmp_path, monkeypatch):
    monkeypatch.setenv("WIRESCAN_PEERS_CACHE", str(tmp_path))
    made = []

    def make(directory: Path) -> None:
        made.append(directory)
        time.sleep(0.3)  # long enough for the other calls to begin
        (directory / "program").touch()

    with ThreadPoolExecutor(CALLS) as pool:
        calls = [pool.submit(make_once, "name", b"recipe", make) for _ in range(CALLS)]
    (target,) = {call.result() for call in calls}
    assert (target / "program").exists()
    assert len(made) == 1
