"""A Spark cluster of processes on this machine: a standalone master, workers, and a driver in a process of its own.

The workers have a host each, of the loopback network: where a task is slow, Spark starts its second attempt on another
host. Nothing tells them where wirescan lies: their executors import what a job brings along.
"""
import os
import re
import subprocess
import sysconfig
import time
import traceback
import venv
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from wirescan.spark import session
from wirescan.spark.java import find_java

SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"          # tests are short: compile little
PATIENCE = 120                                              # seconds for anything to happen
CALL_PATIENCE = 3 * PATIENCE                                # seconds for a call of the driver, which may wait itself
CONFIG = {
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.memory": "1g",
    "spark.executor.memory": "512m", "spark.sql.shuffle.partitions": 4, "spark.driver.extraJavaOptions": SMALL, "spark.executor.extraJavaOptions": SMALL,
}


class Cluster:
    """`with Cluster(folder) as cluster`: a master, and two workers of one core each, on 127.0.0.1 and 127.0.0.2.

    url: the master's. workers: host -> process."""

    def __init__(self, folder):
        self.folder, self.workers = Path(folder), {}

    def __enter__(self):
        log = self.folder / "master.log"
        self._master = self._started(log, "127.0.0.1", "master.Master")
        try:
            self.url = said(log, r"Starting Spark master at (spark://\S+)")
            self.mend()
        except BaseException:
            self.__exit__()
            raise
        return self

    def mend(self):
        """Start workers where there is none, at the beginning and after they were killed."""
        logs = []
        for host in ("127.0.0.1", "127.0.0.2"):
            if host not in self.workers or self.workers[host].poll() is not None:
                folder = self.folder / f"worker-{len(list(self.folder.glob('worker-*.log')))}"
                logs.append(folder.with_suffix(".log"))
                self.workers[host] = self._started(logs[-1], host, "worker.Worker", "--cores", "1", "--memory", "1g",
                                                   "--work-dir", folder, self.url)
        for log in logs:
            said(log, "Successfully (registered) with master")

    def _started(self, log, host, name, *arguments):
        home = Path(os.environ["SPARK_HOME"])
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "SPARK_HOME": str(home),
                       "JAVA_HOME": find_java(), "SPARK_LOCAL_IP": host, "SPARK_LOCAL_DIRS": str(self.folder / "local"),
                       "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": SMALL}
        command = [home / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", "--host", host, "--port", "0",
                   "--webui-port", "0", *arguments]
        with open(log, "wb") as out:
            return subprocess.Popen(list(map(str, command)), env=environment, stdout=out, stderr=subprocess.STDOUT)

    def __exit__(self, *error):
        ours = [*self.workers.values(), self._master]
        left = below(*(process.pid for process in ours))
        for process in ours:
            process.kill()
            process.wait()
        for pid in left:                                    # they end by themselves, but may be stopped, or slow at it
            signalled(pid, 9)


def said(log, pattern):
    """What a log says, as soon as it does: the pattern's group."""
    return waited(lambda: re.search(pattern, log.read_text()), f"{pattern} in {log}").groups()[0]


def waited(condition, what):
    """What `condition` returns, as soon as that is true. Raises TimeoutError."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.02)
    raise TimeoutError(f"nothing within {PATIENCE} s: {what}")


def below(*pids):
    """The processes that some have started, and those have: pid -> (its parent, command)."""
    children = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            command = (entry / "cmdline").read_text(errors="replace")
        except OSError:                                     # it has ended
            continue
        if state != "Z":
            children.setdefault(int(parent), {})[int(entry.name)] = int(parent), command
    found, new = {}, list(pids)
    while new:
        these = children.get(new.pop(), {})
        found |= these
        new += these
    return found


def executors(worker):
    """The JVMs that a worker has started for its executors."""
    return [pid for pid, (_, command) in below(worker).items() if "CoarseGrainedExecutorBackend" in command]


def pythons(worker):
    """The Python processes that run the tasks of a worker's executors; not the daemon that forks them."""
    found = below(worker)
    return [pid for pid, (parent, _) in found.items() if "pyspark.daemon" in found.get(parent, (0, ""))[1]]


def signalled(pid, number):
    """Send a signal to a process, unless it has ended."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def bare_python(folder):
    """An interpreter that has all that this one has installed, but wirescan."""
    venv.create(folder, symlinks=True)
    here, there = Path(sysconfig.get_path("purelib")), next(Path(folder).glob("lib/python*/site-packages"))
    for entry in here.iterdir():
        if entry.suffix != ".pth" and "wirescan" not in entry.name:
            (there / entry.name).symlink_to(entry)
    return Path(folder) / "bin" / "python"


class Driver:
    """`with Driver(cluster, python, config) as driver`: a Python process with a Spark session on the cluster.

    `driver(function, *arguments)`: what a function returns there, which is given the session before its arguments.
    It runs in the folder of the cluster. python: what the tasks run. config: settings of Spark."""

    def __init__(self, cluster, python, config):
        environment = {"PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1",
                       "SPARK_LOCAL_DIRS": str(cluster.folder / "local")}
        self._pool = ProcessPoolExecutor(1, get_context("spawn"), _begin,
                                         (cluster.url, cluster.folder, environment, CONFIG | config))

    def __enter__(self):
        return self

    def __call__(self, function, *arguments):
        return self._pool.submit(_call, function, arguments).result(CALL_PATIENCE)

    def __exit__(self, *error):
        self._pool.submit(_stop)
        self._pool.shutdown(cancel_futures=error[0] is not None)


def _begin(master, folder, environment, config):
    global spark
    os.chdir(folder)
    os.environ.update(environment)
    os.environ.pop("PYTHONPATH", None)                      # it would be handed to Spark's own Python
    spark = session("tests", master, **config)


def _call(function, arguments):
    try:
        return function(spark, *arguments)
    except Exception as error:                              # Spark's own do not travel
        raise RuntimeError("".join(traceback.format_exception(error))) from None


def _stop():
    spark.stop()


def both_there(spark):
    """Wait until there are two executors; in the driver."""
    tracker = spark.sparkContext.statusTracker()
    waited(lambda: len(tracker.getExecutorInfos()) == 3, "the driver and two executors")
