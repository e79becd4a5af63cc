"""An external protocol package is built against the installed .pxd files and keeps the laws."""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import wirescan
from tests.support.paths import ROOT

TESTS = ("laws_of_netstrings.py", "faults_of_netstrings.py", "reading_netstrings.py")
KERNEL = Path("netstrings", "scan.pyx")
# Errors of the kernel: (line, wrong line, the test that finds it, a part of its message).
BROKEN = {
    "a byte after the buffer is read": (
        "while p < r.end and p - start < MOST_DIGITS",
        "while p <= r.end and p - start < MOST_DIGITS",
        "test_netstrings_keep_the_laws",
        "a scan of netstrings reads bytes outside its buffer",
    ),
    "a frame that the end of the bytes cuts is damage": (
        "return SHORT ",
        "return NOT_A_FRAME ",
        "test_netstrings_keep_the_laws",
        "breaks the law 'streams agree'",
    ),
    "a place ends after its frame": (
        "sized(&body, start, <int32_t>size, ",
        "sized(&body, start - 2, <int32_t>size, ",
        "test_netstrings_keep_the_laws",
        "text ends after its frame",
    ),
    "the last byte of the text is lost": (
        "sized(&body, start, <int32_t>size, ",
        "sized(&body, start, <int32_t>size - (size > 0), ",
        "test_netstrings_agree_with_the_slow_decoder",
        "'text_size': 4",
    ),
}


def has_working_compiler() -> bool:
    """Return whether the compiler of setuptools can be started."""
    command = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    program = shutil.which(shlex.split(command)[0])
    if program is None:
        return False
    return subprocess.run([program, "--version"], capture_output=True).returncode == 0


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not has_working_compiler(), reason="builds a package with a C compiler"),
]


@pytest.fixture
def package(tmp_path):
    """A copy of the package, which is not built."""
    package = tmp_path / "package"
    shutil.copytree(ROOT / "tests" / "outside", package)
    return package


def run_python(package: Path, *arguments: str) -> subprocess.CompletedProcess:
    """Run Python in the folder of the package. It does not find wirescan's tests."""
    path = os.pathsep.join([str(package), str(Path(wirescan.__file__).parents[1])])
    environment = os.environ | {"PYTHONPATH": path, "CFLAGS": "-O0 -g0"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=package, env=environment, capture_output=True, text=True
    )


def build(package: Path) -> None:
    built = run_python(package, "setup.py", "-q", "egg_info", "build_ext", "--inplace")
    assert built.returncode == 0, built.stderr


def run_tests(package: Path, *tests: str) -> subprocess.CompletedProcess:
    options = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(package))
    return run_python(package, *options, *tests)


def test_a_package_outside_wirescan(package):
    build(package)
    result = run_tests(package, *TESTS)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("error", BROKEN)
def test_the_laws_find_a_broken_kernel(package, error):
    line, wrong_line, test, message = BROKEN[error]
    source = (package / KERNEL).read_text()
    assert source.count(line) == 1
    (package / KERNEL).write_text(source.replace(line, wrong_line))
    build(package)
    result = run_tests(package, f"laws_of_netstrings.py::{test}")
    assert result.returncode == 1, result.stdout + result.stderr
    assert message in result.stdout
