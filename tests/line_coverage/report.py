"""Report which lines of the kernels and of the Python modules the tests execute.

Run by `.ci/coverage`, in a copy of the tree that was built with COVERAGE=1 and whose tests have
run.

gcov counts lines of the generated C code. Cython writes a comment such as `/*
"wirescan/files/length_prefix.pyx":12` before the C code of each statement, and this report maps C
lines to Cython lines by these comments. An inline function of a .pxd file is compiled into several
modules: a line is reached if any of them reached it.

A kernel line is a statement inside a function of a .pyx, .pxd or .h file. Function headers,
declarations and statements at module level are not counted: importing the module reaches them.

The exit code is 1 if too many kernel lines or Python lines are unreached.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.line_coverage.exclusions import (
    EXCLUSIONS,
    PYTHON_FLOOR,
    UNREACHED_KERNEL_LIMIT,
    Exclusion,
)

# The comment before the C code of a statement: the source file and the line.
STATEMENT = re.compile(r'^\s*/\* "([^"]+\.(?:pyx|pxd))":(\d+)$')
# C lines that belong to no statement: the target of a jump.
LABEL = re.compile(r"^\s*__pyx_L\d+\w*:;?$")
# Functions of the generated C code whose statements are not counted: module level, argument
# parsing.
NOT_COUNTED = ("__pyx_pymod_exec_", "__pyx_pw_", "__Pyx_modinit_")
HEADER = re.compile(r"^(\s*)(?:async def|def|cdef|cpdef)\b.*\(")
EXTERN = re.compile(r"^cdef extern from .*:$")

Counts = dict[int, int]


@dataclass
class FileCoverage:
    """The executable lines of one source file."""

    name: str
    counts: Counts = field(default_factory=dict)
    excluded: dict[int, str] = field(default_factory=dict)  # line -> reason

    @property
    def unreached(self) -> list[int]:
        return sorted(line for line, count in self.counts.items() if count == 0)

    @property
    def reached(self) -> int:
        return len(self.counts) - len(self.unreached)


def find_function_headers(text: list[str]) -> Iterator[tuple[int, int]]:
    """The first and the last line of each function header, with its decorators.

    Line numbers start at 1.
    """
    number = 0
    while number < len(text):
        first = number
        number += 1
        if not HEADER.match(text[first]):
            continue
        statement = text[first].partition("#")[0]
        while statement.count("(") > statement.count(")") and number < len(text):
            statement += text[number].partition("#")[0]
            number += 1
        while first and text[first - 1].strip().startswith("@"):
            first -= 1
        if statement.rstrip().endswith(":"):
            yield first + 1, number


def find_body_stop(text: list[str], first: int, last: int) -> int:
    """The line after the body of the function whose header has these lines."""
    indent = len(text[first - 1]) - len(text[first - 1].lstrip())
    for number in range(last, len(text)):
        line = text[number]
        if line.strip() and len(line) - len(line.lstrip()) <= indent:
            return number + 1
    return len(text) + 1


def find_embedded_c(text: list[str]) -> Iterator[tuple[int, list[str]]]:
    """The C code in `cdef extern` blocks: its first line number, and its lines.

    The lines have no indentation.
    """
    number = 0
    while number < len(text):
        is_extern = EXTERN.match(text[number])
        number += 1
        if not is_extern or number == len(text) or text[number].strip() != '"""':
            continue
        first = number + 1
        last = first
        while text[last].strip() != '"""':
            last += 1
        yield first + 1, [line.strip() for line in text[first:last]]
        number = last


def map_lines_to_statements(c_text: list[str]) -> dict[int, tuple[str, int]]:
    """The source file and line of each line of generated C code that belongs to a statement."""
    places = {}
    place = None
    in_comment = False
    for number, line in enumerate(c_text, 1):
        match = STATEMENT.match(line)
        if match:
            place = match[1], int(match[2])
            in_comment = True
        elif in_comment:
            in_comment = not line.endswith("*/")
        elif line == "}":
            place = None
        elif place and not LABEL.match(line):
            places[number] = place
    return places


def locate_embedded_c(
    c_text: list[str], source: str, text: list[str]
) -> dict[int, tuple[str, int]]:
    """The source line of each line of C code that comes from a `cdef extern` block of `source`."""
    stripped = [line.strip() for line in c_text]
    places = {}
    for first, block in find_embedded_c(text):
        for start in range(len(stripped) - len(block) + 1):
            if stripped[start] == block[0] and stripped[start : start + len(block)] == block:
                for index in range(len(block)):
                    places[start + index + 1] = source, first + index
    return places


def run_gcov(notes: Path) -> Iterator[tuple[str, Counts]]:
    """The files that a module was compiled from, with the count of each line of C code."""
    with tempfile.TemporaryDirectory() as directory:
        command = ["gcov", "--json-format", "--stdout", str(notes)]
        result = subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True)
    for file in json.loads(result.stdout)["files"]:
        counts: Counts = Counter()
        for line in file["lines"]:
            if not line.get("function_name", "").startswith(NOT_COUNTED):
                counts[line["line_number"]] += line["count"]
        yield file["file"], counts


def add_counts(total: dict[str, Counts], name: str, line: int, count: int) -> None:
    total[name][line] = total[name].get(line, 0) + count


def measure_kernel_coverage(tree: Path) -> list[FileCoverage]:
    """The coverage of every .pyx, .pxd and .h file under pkg."""
    package = tree / "pkg"
    sources = {
        str(path.relative_to(package)): path.read_text().splitlines()
        for suffix in ("pyx", "pxd", "h")
        for path in sorted(package.rglob(f"*.{suffix}"))
    }
    total: dict[str, Counts] = defaultdict(dict)
    for notes in sorted((tree / "build").rglob("*.gcno")):
        for file, counts in run_gcov(notes):
            path = tree / file
            name = f"/{file}".rpartition("/pkg/")[2]
            if path.suffix == ".h" and name in sources:  # perhaps Cython's copy of the header
                for line, count in counts.items():
                    add_counts(total, name, line, count)
            elif path.suffix == ".c" and "cython-" in file:
                c_text = path.read_text().splitlines()
                places = map_lines_to_statements(c_text)
                for source, text in sources.items():
                    places |= locate_embedded_c(c_text, source, text)
                for line, count in counts.items():
                    if line in places and places[line][0] in sources:
                        add_counts(total, *places[line], count)
    files = []
    for name, text in sorted(sources.items()):
        counts = total.get(name, {})
        if not name.endswith(".h"):
            counts = remove_headers(counts, text)
        files.append(FileCoverage(name, counts))
    return files


def remove_headers(counts: Counts, text: list[str]) -> Counts:
    """The counts without function headers.

    A function without any C code is represented by its header, which counts as unreached.
    """
    counted = dict(counts)
    for first, last in find_function_headers(text):
        for line in range(first, last + 1):
            counted.pop(line, None)
        if not any(line in counts for line in range(last + 1, find_body_stop(text, first, last))):
            counted[first] = 0
    return counted


def find_excluded_lines(exclusion: Exclusion, text: list[str]) -> set[int]:
    """The numbers of the lines that an exclusion names."""
    lines = set()
    is_inside = False
    for number, line in enumerate(text, 1):
        is_inside = is_inside or bool(re.search(exclusion.pattern, line))
        if is_inside:
            lines.add(number)
            is_inside = exclusion.last is not None and not re.search(exclusion.last, line)
    return lines


def apply_exclusions(files: list[FileCoverage], package: Path) -> None:
    """Move unreached lines that match an exclusion from `counts` to `excluded`."""
    for file in files:
        text = (package / file.name).read_text().splitlines()
        for exclusion in EXCLUSIONS:
            if exclusion.file != file.name:
                continue
            excluded = find_excluded_lines(exclusion, text)
            for line in file.unreached:
                if line in excluded:
                    del file.counts[line]
                    file.excluded[line] = exclusion.reason


def read_python_coverage(tree: Path, data: Path) -> list[FileCoverage]:
    """The coverage of every Python module, from the JSON report of coverage.py."""
    package = tree / "pkg"
    files = []
    for name, file in sorted(json.loads(data.read_text())["files"].items()):
        counts = dict.fromkeys(file["executed_lines"], 1) | dict.fromkeys(file["missing_lines"], 0)
        path = (tree / name).resolve()
        files.append(FileCoverage(str(path.relative_to(package)), counts))
    return files


def format_per_cent(reached: int, lines: int) -> float:
    return 100 * reached / lines if lines else 100.0


def format_table(title: str, files: list[FileCoverage]) -> Iterator[str]:
    yield f"{title:44} {'lines':>6} {'reached':>8} {'per cent':>9}"
    for file in files:
        if file.counts:
            share = format_per_cent(file.reached, len(file.counts))
            yield f"{file.name:44} {len(file.counts):6} {file.reached:8} {share:9.2f}"
    lines, reached = count_lines(files)
    yield f"{'total':44} {lines:6} {reached:8} {format_per_cent(reached, lines):9.2f}"
    yield ""


def count_lines(files: list[FileCoverage]) -> tuple[int, int]:
    """The number of executable lines, and how many of them are reached."""
    return sum(len(file.counts) for file in files), sum(file.reached for file in files)


def list_lines(files: list[FileCoverage], package: Path) -> Iterator[str]:
    for file in files:
        text = (package / file.name).read_text().splitlines()
        for line in file.unreached:
            yield f"{file.name}:{line}: {text[line - 1].strip()}"


def list_exclusions(files: list[FileCoverage]) -> Iterator[str]:
    reasons = Counter((file.name, reason) for file in files for reason in file.excluded.values())
    for (name, reason), count in reasons.items():
        yield f"{name}: {count} lines: {reason}"


def list_verdicts(
    kernels: list[FileCoverage], python: list[FileCoverage]
) -> Iterator[tuple[bool, str]]:
    """For each limit: whether it is kept, and a sentence for the report."""
    lines, reached = count_lines(kernels)
    unreached = 100 - format_per_cent(reached, lines)
    sentence = (
        f"{lines - reached} of {lines} kernel lines are unreached: {unreached:.2f} %, "
        f"at most {UNREACHED_KERNEL_LIMIT} % are allowed"
    )
    yield unreached <= UNREACHED_KERNEL_LIMIT, sentence
    lines, reached = count_lines(python)
    share = format_per_cent(reached, lines)
    sentence = (
        f"{reached} of {lines} Python lines are reached: {share:.2f} %, "
        f"at least {PYTHON_FLOOR} % are required"
    )
    yield share >= PYTHON_FLOOR, sentence


def write_lines(lines: Iterable[str], output: Path, *, also_print: bool) -> None:
    """Append lines to a file, and print them if `also_print`."""
    with output.open("a") as file:
        for line in lines:
            print(line, file=file)
            if also_print:
                print(line)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tree", type=Path, help="the copy of the tree that was built and tested")
    parser.add_argument("python", type=Path, help="the JSON report of coverage.py")
    parser.add_argument("output", type=Path, help="the file to write the whole report to")
    arguments = parser.parse_args()
    tree = arguments.tree.resolve()
    package = tree / "pkg"
    kernels = measure_kernel_coverage(tree)
    apply_exclusions(kernels, package)
    python = read_python_coverage(tree, arguments.python)
    results = list(list_verdicts(kernels, python))

    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text("")
    sections = [
        format_table("Python", python),
        format_table("Kernels", kernels),
        ["Excluded kernel lines, with the reason:", *list_exclusions(kernels), ""],
        ["Unreached kernel lines:", *list_lines(kernels, package), ""],
        [sentence for _, sentence in results],
    ]
    for lines in sections:
        write_lines(lines, arguments.output, also_print=True)
    details = ["", "Unreached Python lines:", *list_lines(python, package)]
    write_lines(details, arguments.output, also_print=False)
    return 0 if all(is_kept for is_kept, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
