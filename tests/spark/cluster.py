"""A Spark cluster of processes on this machine.

It has a standalone master, two workers, and a driver in its own process. Each worker has its own
host of the loopback network, because Spark starts the second attempt of a slow task on another
host. The workers have no path to wirescan. Their executors import what a job brings along.
"""

import os
import re
import signal
import subprocess
import sysconfig
import time
import traceback
import venv
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

from wirescan.spark import session
from wirescan.spark.java import find_java

TIMEOUT = 120  # seconds for one event
CALL_TIMEOUT = 3 * TIMEOUT  # seconds for a call of the driver, which may wait for events
CONFIG = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": 4,
}


class Cluster:
    """A master, and two workers of one core each, on 127.0.0.1 and 127.0.0.2.

    It runs inside `with Cluster(folder) as cluster`.

    url: address of the master. workers: host -> process.
    """

    def __init__(self, folder):
        self.folder = Path(folder)
        self.workers = {}

    def __enter__(self):
        log = self.folder / "master.log"
        self._master = self._start(log, "127.0.0.1", "master.Master")
        try:
            self.url = wait_for_log(log, r"Starting Spark master at (spark://\S+)")
            self.start_missing_workers()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start_missing_workers(self):
        """Start a worker on each host without one. A test may have killed it."""
        logs = []
        for host in ("127.0.0.1", "127.0.0.2"):
            if host not in self.workers or self.workers[host].poll() is not None:
                folder = self.folder / f"worker-{len(list(self.folder.glob('worker-*.log')))}"
                logs.append(folder.with_suffix(".log"))
                options = ["--cores", "1", "--memory", "1g", "--work-dir", folder]
                worker = self._start(logs[-1], host, "worker.Worker", *options, self.url)
                self.workers[host] = worker
        for log in logs:
            wait_for_log(log, "Successfully (registered) with master")

    def _start(self, log, host, name, *arguments):
        home = Path(os.environ["SPARK_HOME"])
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "SPARK_HOME": str(home),
            "JAVA_HOME": find_java(),
            "SPARK_LOCAL_IP": host,
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
        }
        program = [home / "bin" / "spark-class", f"org.apache.spark.deploy.{name}"]
        options = ["--host", host, "--port", "0", "--webui-port", "0"]
        command = list(map(str, [*program, *options, *arguments]))
        with open(log, "wb") as out:
            return subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.STDOUT)

    def __exit__(self, *error):
        processes = [*self.workers.values(), self._master]
        started = list_descendants(*(process.pid for process in processes))
        for process in processes:
            process.kill()
            process.wait()
        for pid in started:  # they end by themselves, except stopped or slow ones
            send_signal(pid, signal.SIGKILL)


def wait_for_log(log, pattern):
    """Wait until a log matches a pattern. Return the pattern's group."""
    match = wait_for(lambda: re.search(pattern, log.read_text()), f"{pattern} in {log}")
    return match.groups()[0]


def wait_for(condition, event):
    """Call `condition` until its result is true. Return the result.

    Raises TimeoutError, which names the event.
    """
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end:
        if result := condition():
            return result
        time.sleep(0.02)
    raise TimeoutError(f"nothing within {TIMEOUT} s: {event}")


def list_descendants(*pids):
    """Return the children of processes, and their children: pid -> (parent, command)."""
    children = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            command = (entry / "cmdline").read_text(errors="replace")
        except OSError:  # it has ended
            continue
        if state != "Z":
            children.setdefault(int(parent), {})[int(entry.name)] = int(parent), command
    processes = {}
    pending = list(pids)
    while pending:
        of_parent = children.get(pending.pop(), {})
        processes |= of_parent
        pending += of_parent
    return processes


def list_executors(worker):
    """Return the JVMs of a worker's executors."""
    return [
        pid
        for pid, (_, command) in list_descendants(worker).items()
        if "CoarseGrainedExecutorBackend" in command
    ]


def list_python_processes(worker):
    """Return the Python processes that run the tasks of a worker's executors.

    The daemon that forks them is not one of them.
    """
    processes = list_descendants(worker)
    return [
        pid
        for pid, (parent, _) in processes.items()
        if "pyspark.daemon" in processes.get(parent, (0, ""))[1]
    ]


def send_signal(pid, number):
    """Send a signal to a process, unless it has ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def make_bare_python(folder):
    """Make an interpreter that has all installed packages of this one except wirescan."""
    venv.create(folder, symlinks=True)
    installed = Path(sysconfig.get_path("purelib"))
    packages = next(Path(folder).glob("lib/python*/site-packages"))
    for entry in installed.iterdir():
        if entry.suffix != ".pth" and "wirescan" not in entry.name:
            (packages / entry.name).symlink_to(entry)
    return Path(folder) / "bin" / "python"


class Driver:
    """A Python process with a Spark session on the cluster.

    It runs inside `with Driver(cluster, python, config) as driver`. `driver(function, *arguments)`
    calls a function there and returns its result. The function gets the session before its
    arguments. It runs in the folder of the cluster.

    python: interpreter of the tasks. config: settings of Spark.
    """

    def __init__(self, cluster, python, config):
        environment = {
            "PYSPARK_PYTHON": str(python),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(cluster.folder / "local"),
        }
        arguments = (cluster.url, cluster.folder, environment, CONFIG | config)
        self._pool = ProcessPoolExecutor(1, get_context("spawn"), _start_session, arguments)

    def __enter__(self):
        return self

    def __call__(self, function, *arguments):
        return self._pool.submit(_call, function, arguments).result(CALL_TIMEOUT)

    def __exit__(self, *error):
        self._pool.submit(_stop)
        self._pool.shutdown(cancel_futures=error[0] is not None)


def _start_session(master, folder, environment, config):
    global spark
    os.chdir(folder)
    os.environ.update(environment)
    os.environ.pop("PYTHONPATH", None)  # Spark would pass it to its Python processes
    spark = session("tests", master, **config)


def _call(function, arguments):
    try:
        return function(spark, *arguments)
    except Exception as error:  # errors of Spark cannot be pickled
        raise RuntimeError("".join(traceback.format_exception(error))) from None


def _stop():
    spark.stop()


def wait_for_executors(spark):
    """Wait until the cluster has two executors. Runs in the driver."""
    # Python's own tracker knows no executors before Spark 4.1.
    tracker = spark.sparkContext._jsc.sc().statusTracker()
    wait_for(lambda: len(tracker.getExecutorInfos()) == 3, "the driver and two executors")
