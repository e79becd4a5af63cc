"""A room that is not of this package: built against it as it is installed, by its .pxd files, it keeps the laws."""
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import wirescan

HERE = Path(__file__).parent


def compiler_works() -> bool:
    """Return whether the compiler that setuptools would take can be started."""
    command = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    program = shutil.which(shlex.split(command)[0])
    return program is not None and subprocess.run([program, "--version"], capture_output=True).returncode == 0


@pytest.mark.skipif(not compiler_works(), reason="builds a package, which needs a C compiler")
def test_a_room_outside_the_package(tmp_path):
    room = tmp_path / "room"
    shutil.copytree(HERE / "outside", room)
    path = os.pathsep.join([str(room), str(HERE), str(Path(wirescan.__file__).parents[1])])
    environment = os.environ | {"PYTHONPATH": path, "CFLAGS": "-O0 -g0", "WIRESCAN_EXAMPLES": "25"}
    built = subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=room, env=environment,
                           capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "laws_of_netstrings.py"],
                          cwd=room, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
