"""An object store for tests of URLs: moto's S3 server on loopback.

with ObjectStore() as store:
    store.put("topic/0.log", b"...")
    store.url("topic/*.log")            # with the login and the address of the server
    store.requests                      # ["HEAD /bucket/topic/0.log", ...], in their order
"""

import logging
import re
from contextlib import contextmanager
from urllib.parse import quote
from urllib.request import Request, urlopen

from moto.server import ThreadedMotoServer
from pyarrow import fs

from tests.support.bucket_files import BUCKET, BucketFiles

LOGIN = ("wirescan", "secret")


class ObjectStore(logging.Handler, BucketFiles):
    """The server, with one bucket and a list of the logged requests."""

    def __init__(self):
        super().__init__()
        self.requests = []
        self._server = ThreadedMotoServer("127.0.0.1", 0)

    def emit(self, record):
        line = re.sub(r"\x1b\[[\d;]*m", "", record.getMessage()).split('"')  # without colours
        if len(line) > 1:
            self.requests.append(line[1].rpartition(" ")[0])

    def __enter__(self):
        self._logger = logging.getLogger("werkzeug")
        self._logger.setLevel(logging.INFO)
        self._logger.addHandler(self)
        self._server.start()
        host, port = self._server.get_host_and_port()
        self.address = f"http://{host}:{port}"
        self._post("reset", b"")  # the servers of a process share their objects
        self.options = f"?endpoint_override={self.address}&region=us-east-1"
        self.files = fs.S3FileSystem(
            access_key=LOGIN[0],
            secret_key=LOGIN[1],
            endpoint_override=self.address,
            region="us-east-1",
            allow_bucket_creation=True,
        )
        self.files.create_dir(BUCKET)
        return self

    def __exit__(self, *raised):
        self._server.stop()
        self._logger.removeHandler(self)

    def url(self, path, bucket=BUCKET, login=LOGIN):
        """Return the URL of a path, with the login and the server's address.

        path: percent-encoded, or a glob.
        """
        return f"s3://{quote(login[0])}:{quote(login[1])}@{bucket}/{path}{self.options}"

    @contextmanager
    def refuse_logins(self):
        """Reject every login inside the with statement."""
        self._refuse(b"0")
        try:
            yield
        finally:
            self._refuse(b"inf")

    def _refuse(self, after):
        self._post("reset-auth", after)

    def _post(self, command, data):
        """Send a command to moto's own API."""
        headers = {"Content-Type": "text/plain"}
        urlopen(Request(f"{self.address}/moto-api/{command}", data, headers)).close()

    def record_requests(self, call):
        """Return the result of a call, and the requests that it made."""
        before = len(self.requests)
        return call(), self.requests[before:]
