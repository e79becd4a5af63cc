"""The commands of docs/spark.md, run: on one machine, on a standalone cluster with a packed environment; for YARN and
Kubernetes up to the call of the cluster."""
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from conftest import ORDERS
from guides import BLOCKS, HEAP, ROOT, block, environment, free_port, running, shell

import wirescan

pytestmark = pytest.mark.spark

RECORDS = 27_708


def test_every_block_with_a_name_is_run():
    here = {"local", "pack", "job", "cluster", "submit", "yarn", "kubernetes"}
    assert set(BLOCKS) == here | {"server", "client"}           # these by test_spark_connect.py


def test_one_machine(tmp_path):
    code = block("local", **{"/data/orders-0": ORDERS, "4g": "1g"})
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment(tmp_path), capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
    table = wirescan.scan(ORDERS, "kafka.records")
    assert done.stdout.splitlines()[0] == str((table["value_size"] > 1000).sum())
    assert str(table["offset"].max()) in done.stdout


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """The environment of the guide, packed; but wirescan is copied as it is installed here, not built again, and the
    archive is compressed quickly."""
    folder = tmp_path_factory.mktemp("packed")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["arrow"]]
    make, install, pack = block("pack", **{"'.[arrow]'": " ".join(f"'{one}'" for one in needed),
                                           " -o ": " --compress-level 1 -o "}).splitlines()
    shell(f"{make}\n{install}", folder)
    site, = folder.glob("packed/lib/python*/site-packages")
    shutil.copytree(Path(wirescan.__file__).parent, site / "wirescan",
                    ignore=shutil.ignore_patterns("*.pyx", "*.c", "__pycache__"))
    shell(pack, folder)
    return folder / "environment.tar.gz"


def test_standalone_cluster(packed, tmp_path):
    port, web = free_port(), free_port()
    start = block("cluster", **{"7077": port})
    (tmp_path / "job.py").write_text(block("job"))
    (tmp_path / "environment.tar.gz").symlink_to(packed)
    submit = block("submit", **{
        "7077": port, "/data/orders-0": ORDERS, "/data/orders.parquet": tmp_path / "out",
        "--executor-memory": f"--driver-memory 1g --driver-java-options '{HEAP}' --executor-memory"})
    with running(start, tmp_path, port, SPARK_MASTER_WEBUI_PORT=str(web), SPARK_WORKER_WEBUI_PORT="0",
                 SPARK_DAEMON_MEMORY="256m"):
        said = shell(start.splitlines()[0] + "\n" + submit, tmp_path)
    assert said.splitlines() == [f"{RECORDS} records, 0 faults", str(RECORDS)]
    assert list((tmp_path / "work").glob("app-*/*/environment/lib/python*/site-packages/wirescan"))
    assert list((tmp_path / "out").glob("*.parquet"))


@pytest.mark.parametrize("name, application, properties", [
    ("yarn", "yarn.YarnClusterApplication", ["(spark.yarn.dist.archives,file:", "environment.tar.gz#environment)",
                                             "(spark.pyspark.python,./environment/bin/python)"]),
    ("kubernetes", "k8s.submit.KubernetesClientApplication", ["(spark.kubernetes.container.image,registry.example/"]),
])
def test_a_submission_gets_as_far_as_the_cluster(tmp_path, name, application, properties):
    """Spark takes every option, makes an application of its cluster of them, and fails for want of that."""
    (tmp_path / "job.py").write_text(block("job"))
    (tmp_path / "environment.tar.gz").write_bytes(b"")
    port = free_port()
    for file, settings in (
            ("yarn-site.xml", {"yarn.resourcemanager.address": f"127.0.0.1:{port}",
                               "yarn.resourcemanager.connect.max-wait.ms": 1,
                               "yarn.resourcemanager.connect.retry-interval.ms": 1}),
            ("core-site.xml", {"ipc.client.connect.max.retries": 0})):
        (tmp_path / file).write_text("<configuration>%s</configuration>" % "".join(
            f"<property><name>{key}</name><value>{value}</value></property>" for key, value in settings.items()))
    text = BLOCKS[name].replace("kubernetes.example:6443", f"127.0.0.1:{port}")
    text = block("cluster").splitlines()[0] + "\n" + text.replace("spark-submit ", "spark-submit --verbose ", 1)
    done = subprocess.run(["bash", "-c", text], cwd=tmp_path, capture_output=True, text=True,
                          env=environment(tmp_path, HADOOP_CONF_DIR=str(tmp_path), SPARK_SUBMIT_OPTS=HEAP))
    said = done.stdout + done.stderr
    assert done.returncode and application in said and "Connection refused" in said, said[-4000:]
    assert all(one in said for one in properties), said
