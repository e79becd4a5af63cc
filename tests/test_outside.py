"""A room that is not of this package: built against it as it is installed, by its .pxd files, it keeps the laws."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

import wirescan

HERE = Path(__file__).parent


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
