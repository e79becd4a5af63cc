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

TESTS = ("laws_of_netstrings.py", "faults_of_netstrings.py")


def has_working_compiler() -> bool:
    """Return whether the compiler of setuptools can be started."""
    command = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    program = shutil.which(shlex.split(command)[0])
    if program is None:
        return False
    return subprocess.run([program, "--version"], capture_output=True).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not has_working_compiler(), reason="builds a package, which needs a C compiler")
def test_a_package_outside_wirescan(tmp_path):
    package = tmp_path / "package"
    shutil.copytree(ROOT / "tests" / "outside", package)
    path = os.pathsep.join([str(package), str(ROOT), str(Path(wirescan.__file__).parents[1])])
    environment = os.environ | {"PYTHONPATH": path, "CFLAGS": "-O0 -g0", "WIRESCAN_EXAMPLES": "25"}
    built = subprocess.run(
        [sys.executable, "setup.py", "-q", "egg_info", "build_ext", "--inplace"],
        cwd=package,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS],
        cwd=package,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
