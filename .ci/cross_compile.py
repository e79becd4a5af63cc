"""Compile wirescan's extension modules for another architecture.

`python .ci/cross_compile.py COMPILER TRIPLET ROOT TARGET` copies pkg/ to TARGET and compiles the C
files that `setup.py build_ext` left under build/ into it. ROOT holds a Debian system of the other
architecture, whose headers and C library are used. A module that is newer than its C file is kept.
"""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import Cython

REPOSITORY = Path(__file__).resolve().parent.parent
GENERATED = REPOSITORY / "build" / f"cython-{Cython.__version__}-plain"
# The flags that CPython's own extension modules are compiled with.
PYTHON_FLAGS = ["-shared", "-fPIC", "-fwrapv", "-DNDEBUG"]

sys.path.insert(0, str(REPOSITORY))
import setup  # noqa: E402  (the project's setup.py)


def find_headers(root: Path) -> Path:
    """Return the folder of Python.h in a Debian system of another architecture."""
    folders = sorted(root.glob("usr/include/python3.*"))
    if len(folders) != 1:
        raise SystemExit(
            f"expected one folder usr/include/python3.* in {root}, found {len(folders)}"
        )
    return folders[0]


def copy_package(target: Path) -> None:
    """Copy pkg/ without the modules that were compiled for this machine."""
    ignore = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info")
    shutil.copytree(REPOSITORY / "pkg", target, ignore=ignore, dirs_exist_ok=True)


def list_commands(compiler: str, triplet: str, root: Path, target: Path) -> list[list[str]]:
    """Return the compiler's command line for every module that is missing or out of date."""
    headers = find_headers(root)
    version = headers.name.removeprefix("python").replace(".", "")
    newest_header = max(path.stat().st_mtime for path in (REPOSITORY / "pkg").rglob("*.h"))
    commands = []
    for extension in setup.list_extensions():
        source = GENERATED / Path(extension.sources[0]).with_suffix(".c")
        if not source.exists():
            raise SystemExit(f"{source} does not exist: run `python setup.py build_ext --inplace`")
        relative = source.relative_to(GENERATED / "pkg").with_suffix("")
        module = target / relative.parent / f"{relative.name}.cpython-{version}-{triplet}.so"
        if module.exists() and module.stat().st_mtime > max(newest_header, source.stat().st_mtime):
            continue
        macros = [f"-D{name}={value}" for name, value in extension.define_macros]
        includes = [f"-I{headers}", f"-I{REPOSITORY / 'pkg' / 'wirescan' / 'core'}"]
        # The modules are compiled for the C library that they will run with.
        system = f"--sysroot={root}"
        flags = [system, *PYTHON_FLAGS, *extension.extra_compile_args, *macros, *includes]
        commands.append([compiler, *flags, str(source), "-o", str(module)])
    return commands


def main(compiler: str, triplet: str, root: str, target: str) -> None:
    """Copy the package to `target` and compile its modules there."""
    copy_package(Path(target))
    commands = list_commands(compiler, triplet, Path(root), Path(target))
    # The longest are compiled first, so that no core ends with a long one.
    commands.sort(key=lambda command: Path(command[-3]).stat().st_size, reverse=True)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for done in [pool.submit(subprocess.run, command, check=True) for command in commands]:
            done.result()
    print(f"compiled {len(commands)} modules for {triplet}")


if __name__ == "__main__":
    if len(sys.argv) != 5:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
