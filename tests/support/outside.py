"""Protocol packages outside of wirescan: building, installing and testing them."""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import wirescan

from .paths import ROOT

OUTSIDE = ROOT / "tests" / "outside"


def has_working_compiler() -> bool:
    """Return whether the compiler of setuptools can be started."""
    command = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    program = shutil.which(shlex.split(command)[0])
    if program is None:
        return False
    return subprocess.run([program, "--version"], capture_output=True).returncode == 0


def make_environment(*folders: Path) -> dict[str, str]:
    """Return variables for processes that import from folders and wirescan, not from its tests."""
    path = map(str, (*folders, Path(wirescan.__file__).parents[1]))
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(path),
        "CFLAGS": f"{os.environ.get('CFLAGS', '')} -O0 -g0",
        "WIRESCAN_EXAMPLES": "25",
    }


def run_python(*arguments: object, folder: Path, environment: dict[str, str]) -> None:
    """Run Python in a folder. Raises AssertionError with the output if it fails."""
    result = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def install_resp(folder: Path) -> dict[str, str]:
    """Build and install wirescan-resp as its users do. Return variables for its processes.

    Its files, without its source, are then in the folder `resp`.
    """
    package = folder / "resp"
    site = folder / "site"
    shutil.copytree(OUTSIDE / "resp", package)
    environment = make_environment(site)
    options = ("-q", "--no-deps", "--no-build-isolation", "--disable-pip-version-check")
    install = ("-m", "pip", "install", *options, "--target", site, ".")
    run_python(*install, folder=package, environment=environment)
    shutil.rmtree(package / "wirescan_resp")  # processes would import it from their folder
    return environment


def run_tests_of_resp(folder: Path, environment: dict[str, str], *arguments: str) -> None:
    """Run the tests of wirescan-resp against the installed package."""
    command = ("-m", "pytest", "-q", "-p", "no:cacheprovider", *(arguments or ("tests",)))
    run_python(*command, folder=folder / "resp", environment=environment)
