"""wirescan-resp reads what a real redis-server and its client send."""

import os
import shutil

import pytest

from tests.support.outside import install_resp, run_tests_of_resp

from .redis_server import RedisServer, record

pytestmark = pytest.mark.peers


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="needs Debian's redis-server")
def test_a_conversation_that_is_recorded_anew(tmp_path):
    with RedisServer() as server:
        requests, replies = record(server.address)
    (tmp_path / "requests.resp").write_bytes(requests)
    (tmp_path / "replies.resp").write_bytes(replies)
    environment = install_resp(tmp_path) | {"RESP_CONVERSATION": os.fspath(tmp_path)}
    run_tests_of_resp(tmp_path, environment, "tests/test_conversation.py")
