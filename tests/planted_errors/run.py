"""Plant errors in a copy of wirescan and run the tests that must notice them.

    python -m tests.planted_errors.run [--only ID ...] [--sample N --seed S] [--jobs N] [--work DIR]

All errors are built into one copy. The environment variable WIRESCAN_PLANTED holds the number of
the one error that is switched on; without it the copy behaves like the original. The run checks
first that all named tests pass with no error switched on. Then it runs the tests of each error by
themselves, with that error switched on, and expects them to fail.

The exit code is 0 if every error was noticed, and 1 if one was not.
"""

import argparse
import ast
import contextlib
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path

from tests.planted_errors.planted import (
    PACKAGE,
    ROOT,
    SWITCH_IN_C,
    SWITCH_IN_PYTHON,
    Planted,
    PlantingError,
    plant,
    read_planted,
)

VARIABLE = "WIRESCAN_PLANTED"
PYTHON_MODULE = "_planted.py"
C_HEADER = "planted.h"
NOT_COPIED = (
    ".git",
    ".venv",
    "build",
    "dist",
    "__pycache__",
    "*.so",
    "*.egg-info",
    ".pytest_cache",
    ".hypothesis",
)
# The copy is compiled without optimisation. That takes a third of the time, and the tests are
# small.
FLAGS = '["-O2", "-g0"]'
QUICK_FLAGS = '["-O0", "-g0"]'
BUILD_SECONDS = 1800
BASELINE_SECONDS = 1200
TEST_SECONDS = 600
PARTS_OF_JOB = 4
# Imported once, before processes are forked. None of them imports wirescan.
PRELOADED = [
    "numpy",
    "pytest",
    "_pytest.assertion.rewrite",
    "hypothesis",
    "pyarrow",
    "pyarrow.parquet",
    "cramjam",
    "snappy",
    "click",
    "rich",
    "asyncio",
    "ssl",
    "crc32c",
    # plugins of pytest
    "hypothesis.extra.pytestplugin",
    "pytest_timeout",
    "xdist.plugin",
]
# If one of these is set, pytest shows whole differences. Those of long lists take minutes.
VARIABLES_OF_CI = ("CI", "BUILD_NUMBER")
# multiprocessing looks at all child processes when it starts one. An exit code can be read once
# only, so no other thread may look at the same time.
CHILDREN_LOCK = threading.Lock()
OUTPUT = "output"  # the file that the output of a run goes to, in the directory of that run
# Exit codes of pytest.
PASSED = 0
FAILED = 1

# The switch for C and Cython. The compiler includes it before all other headers, so it must not
# include any.
HEADER_TEXT = f"""\
extern char* getenv(const char*);
extern int atoi(const char*);
static int {SWITCH_IN_C}_number = -1;
__attribute__((unused)) static int {SWITCH_IN_C}(int number) {{
    if ({SWITCH_IN_C}_number < 0) {{
        const char* value = getenv("{VARIABLE}");
        {SWITCH_IN_C}_number = value ? atoi(value) : 0;
    }}
    return {SWITCH_IN_C}_number == number;
}}
"""
CYTHON_DECLARATION = f"""
cdef extern from *:
    bint {SWITCH_IN_C}(int number) noexcept nogil
"""
MODULE_TEXT = f"""\
import os

NUMBER = int(os.environ.get("{VARIABLE}") or 0)


def active(number):
    return NUMBER == number
"""
IMPORT_LINE = (
    f"from wirescan.{PYTHON_MODULE.removesuffix('.py')} import active as {SWITCH_IN_PYTHON}\n"
)


@dataclass(frozen=True)
class Outcome:
    """The result of the tests of one planted error."""

    planted: Planted
    kind: str  # "noticed", "crashed", "timed out", "unnoticed" or "not run"
    seconds: float
    output: str

    @property
    def is_noticed(self) -> bool:
        return self.kind in ("noticed", "crashed", "timed out")


# --- the copy


def write_if_changed(path: Path, text: str) -> None:
    """Write a file. An equal file keeps its time stamp, so it is not compiled again."""
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def declare_switch(path: Path, source: str) -> str:
    """Return the source of a file with a declaration of the switch that it uses."""
    if path.suffix == ".h":
        return source
    if path.suffix != ".py":
        return source + CYTHON_DECLARATION
    line = 0
    for statement in ast.parse(source).body:
        is_docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        is_future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        if not is_docstring and not is_future:
            break
        line = statement.end_lineno
    lines = source.splitlines(keepends=True)
    return "".join([*lines[:line], IMPORT_LINE, *lines[line:]])


def copy_tree(work: Path) -> None:
    """Copy the repository. Files of the copy that are up to date are not written again."""

    def copy_file(source: str, target: str) -> None:
        path = Path(target)
        is_source = path.suffix in (".pyx", ".pxd", ".h", ".py")
        if is_source and PACKAGE.name in path.parts:
            write_if_changed(path, Path(source).read_text())
        else:
            shutil.copy2(source, target)

    planted_files = {str(ROOT / entry.path) for entry in read_planted()}

    def list_ignored(directory: str, names: list[str]) -> set[str]:
        planted = {name for name in names if os.path.join(directory, name) in planted_files}
        return planted | set(shutil.ignore_patterns(*NOT_COPIED)(directory, names))

    shutil.copytree(ROOT, work, ignore=list_ignored, copy_function=copy_file, dirs_exist_ok=True)


def build_copy(work: Path, entries: list[Planted]) -> None:
    """Copy the repository with all errors planted, and build the copy.

    Raises PlantingError if an entry does not fit or the build fails.
    """
    by_path = defaultdict(list)
    for entry in entries:
        by_path[entry.path].append(entry)
    texts = {}
    for path, of_path in by_path.items():
        original = ROOT / path
        if not original.exists():
            raise PlantingError(f"{of_path[0].id}: there is no file {path}")
        texts[path] = declare_switch(path, plant(original.read_text(), of_path))
    copy_tree(work)
    for path, text in texts.items():
        write_if_changed(work / path, text)
    setup = (ROOT / "setup.py").read_text()
    if FLAGS not in setup:
        raise PlantingError(f"setup.py has no compiler flags {FLAGS}; change FLAGS in run.py")
    write_if_changed(work / "setup.py", setup.replace(FLAGS, QUICK_FLAGS))
    write_if_changed(work / PACKAGE / PYTHON_MODULE, MODULE_TEXT)
    write_if_changed(work / C_HEADER, HEADER_TEXT)
    environment = make_environment(work)
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    build = subprocess.run(
        command, cwd=work, env=environment, timeout=BUILD_SECONDS, capture_output=True, text=True
    )
    if build.returncode:
        raise PlantingError(
            f"the copy with planted errors cannot be built:\n{build.stdout}{build.stderr}"
        )


def make_environment(work: Path, number: int = 0) -> dict[str, str]:
    """Return the environment of a process that uses the copy, with at most one error on.

    The copy and the kernels that tests compile against it include the header of the switch.
    """
    environment = dict(os.environ)
    environment["CFLAGS"] = f"{os.environ.get('CFLAGS', '')} -include {work / C_HEADER}"
    environment[VARIABLE] = str(number)
    environment["PYTHONPATH"] = str(work / "pkg")
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    for name in VARIABLES_OF_CI:
        environment.pop(name, None)
    return environment


def check_import(work: Path) -> None:
    """Raise PlantingError if a process would use another wirescan than the copy."""
    program = "import wirescan; print(wirescan.__file__)"
    run = subprocess.run(
        [sys.executable, "-c", program],
        cwd=work,
        env=make_environment(work),
        capture_output=True,
        text=True,
        check=True,
    )
    if not run.stdout.startswith(str(work)):
        raise PlantingError(f"the tests would use {run.stdout.strip()}, not the copy in {work}")


# --- the tests


def run_tests(work: Path, tests: list[str], number: int, directory: str) -> None:
    """Run pytest in a child process with one error switched on.

    The output goes to the file OUTPUT of `directory`, beside the temporary files of the tests.
    """
    os.setsid()
    environment = make_environment(work, number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(work)
    # This program is part of the original's package `tests`; the copy has its own.
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    sys.path[:0] = [str(work / "pkg"), str(work)]
    output = Path(directory, OUTPUT)
    with open(os.devnull) as nothing, open(output, "w") as file:
        os.dup2(nothing.fileno(), 0)
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    import pytest

    # Runs that share pytest's own directory can fail when they clean it up at the same time.
    # A named test may be in the group `slow`, which pyproject.toml leaves out by default.
    options = ["-x", "-q", "--tb=short", "-p", "no:cacheprovider", "-m", ""]
    code = pytest.main([*options, f"--basetemp={directory}/temporary", *tests])
    sys.stdout.flush()
    # Exit at once, even if a test left threads running.
    os._exit(code)


def run_pytest(work: Path, tests: list[str], number: int, seconds: float) -> tuple[int | None, str]:
    """Run pytest in a child process. Return its exit code and its output.

    The exit code is None after a timeout, and negative if a signal ended the process.
    """
    # The fork server has imported the packages that the tests need, except wirescan.
    context = multiprocessing.get_context("forkserver")
    with tempfile.TemporaryDirectory(prefix="wirescan-", ignore_cleanup_errors=True) as directory:
        process = context.Process(target=run_tests, args=(work, tests, number, directory))
        with CHILDREN_LOCK:
            process.start()
        is_in_time = bool(wait([process.sentinel], seconds))
        if not is_in_time:
            kill_session(process.pid)
        with CHILDREN_LOCK:
            process.join()
            code = process.exitcode if is_in_time else None
        output = Path(directory, OUTPUT)
        return code, output.read_text(errors="replace") if output.exists() else ""


def kill_session(session: int) -> None:
    """Kill a child process that leads a session, and the processes that it started there."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(session, signal.SIGKILL)


def try_error(work: Path, entry: Planted) -> Outcome:
    """Run the tests of one error with that error switched on.

    They run once more if pytest ended without a result.
    """
    outcome = run_tests_of(work, entry)
    if outcome.kind == "not run":
        print(f"{entry.id} is tried again after:\n{get_end(outcome.output)}", flush=True)
        outcome = run_tests_of(work, entry)
    return outcome


def run_tests_of(work: Path, entry: Planted) -> Outcome:
    start = time.monotonic()
    code, output = run_pytest(work, list(entry.tests), entry.number, TEST_SECONDS)
    if code is None:
        kind = "timed out"
    elif code == FAILED and find_failed_test(
        output
    ):  # a process that cannot start has this code too
        kind = "noticed"
    elif code < 0:
        kind = "crashed"
    elif code == PASSED:
        kind = "unnoticed"
    else:
        kind = "not run"
        output += f"\npytest ended with {code}"
    return Outcome(entry, kind, time.monotonic() - start, output)


def get_end(output: str) -> str:
    """Return the last 15 lines."""
    return "\n".join(output.splitlines()[-15:])


def find_failed_test(output: str) -> str:
    """Return the node id of the first failure in pytest's summary, or an empty string."""
    for line in output.splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            return line.split(" ", 1)[1].split(" - ")[0]
    return ""


def print_outcome(outcome: Outcome) -> None:
    detail = find_failed_test(outcome.output) or " ".join(outcome.planted.tests)
    print(
        f"{outcome.kind:<10} {outcome.seconds:6.1f} s  {outcome.planted.id}  {detail}", flush=True
    )


# --- the run


def split_tests(tests: list[str], count: int) -> list[list[str]]:
    """Split tests into at most `count` lists of about equal lengths. A file is in one list."""
    by_file = defaultdict(list)
    for test in sorted(tests):
        by_file[test.partition("::")[0]].append(test)
    parts: list[list[str]] = [[]]
    for of_file in by_file.values():
        if len(parts[-1]) >= len(tests) / count:
            parts.append([])
        parts[-1] += of_file
    return parts


def check_tests(work: Path, entries: list[Planted], jobs: int) -> bool:
    """Run the tests of all entries with no error switched on. Return whether they pass.

    They run in more parts than `jobs`, so that no job is left with a long part at the end.
    """
    tests = {test for entry in entries for test in entry.tests}
    parts = split_tests(list(tests), PARTS_OF_JOB * jobs)
    with ThreadPoolExecutor(jobs) as pool:
        results = pool.map(lambda part: run_pytest(work, part, 0, BASELINE_SECONDS), parts)
        for code, output in results:
            if code != PASSED:
                pool.shutdown(cancel_futures=True)
                print(output)
                print(f"the tests do not pass with no error switched on: pytest ended with {code}")
                return False
            print(*output.splitlines()[-1:], flush=True)
    return True


def select(entries: list[Planted], arguments: argparse.Namespace) -> list[Planted]:
    """Return the entries that the command line selects.

    Raises PlantingError for an unknown id.
    """
    if arguments.only:
        by_id = {entry.id: entry for entry in entries}
        unknown = [name for name in arguments.only if name not in by_id]
        if unknown:
            raise PlantingError(f"there are no planted errors called {', '.join(unknown)}")
        entries = [by_id[name] for name in arguments.only]
    if arguments.sample is not None:
        generator = random.Random(arguments.seed)
        entries = generator.sample(entries, min(arguments.sample, len(entries)))
    return entries


def read_cpu_seconds() -> float:
    """Return the CPU time of this process and of the children that it waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def run(arguments: argparse.Namespace, work: Path) -> int:
    everything = read_planted()
    chosen = select(everything, arguments)
    print(f"building a copy with {len(everything)} planted errors in {work}", flush=True)
    build_copy(work, everything)
    check_import(work)
    print(
        f"built after {read_cpu_seconds():.0f} s of CPU time; running the tests with no error",
        flush=True,
    )
    multiprocessing.get_context("forkserver").set_forkserver_preload(PRELOADED)
    if not check_tests(work, chosen, arguments.jobs):
        return 1
    print(f"they pass; {read_cpu_seconds():.0f} s of CPU time so far", flush=True)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        outcomes = []
        for outcome in pool.map(lambda entry: try_error(work, entry), chosen):
            print_outcome(outcome)
            outcomes.append(outcome)
    missed = [outcome for outcome in outcomes if not outcome.is_noticed]
    noticed = len(outcomes) - len(missed)
    print(f"\n{len(outcomes)} planted, {noticed} noticed, {read_cpu_seconds():.0f} s of CPU time")
    for kind in ("crashed", "timed out"):
        names = [outcome.planted.id for outcome in outcomes if outcome.kind == kind]
        if names:
            print(f"{kind}: {', '.join(names)}")
    for outcome in missed:
        planted = outcome.planted
        print(f"{outcome.kind}: {planted.id} in {planted.path}: {planted.before!r}")
        print(get_end(outcome.output))
    print(f"{noticed} passed, {len(missed)} failed")
    return 1 if missed else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", metavar="ID", help="run these planted errors only")
    parser.add_argument(
        "--sample", type=int, metavar="N", help="run N planted errors, chosen at random"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed for --sample (default 0)")
    # Some tests wait for timers, so there are more jobs than cores.
    jobs = (os.cpu_count() or 1) * 3 // 2
    parser.add_argument(
        "--jobs", type=int, default=jobs, help="runs side by side (default: 1.5 for each core)"
    )
    parser.add_argument(
        "--work", type=Path, help="keep the copy here, and build only what changed since"
    )
    arguments = parser.parse_args()
    try:
        if arguments.work:
            return run(arguments, arguments.work.resolve())
        with tempfile.TemporaryDirectory(prefix="wirescan-mutations-") as directory:
            return run(arguments, Path(directory).resolve())
    except PlantingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
