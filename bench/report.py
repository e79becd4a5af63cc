"""The report of a run in markdown: the machine, the targets, then tables and text."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from bench.timing import Times, take_usage

RESULTS = Path(__file__).with_name("RESULTS.md")
TITLE = "# Results\n\nWritten by `python -m bench`; bench/__init__.py says how to run it.\n"


@dataclass
class Target:
    """A promised bound and the measured value.

    spread: the quartiles. at_most: `bound` is an upper bound, else a lower one.
    """

    name: str
    bound: float
    measured: float
    spread: tuple[float, ...]
    at_most: bool
    unit: str

    @property
    def met(self) -> bool:
        return self.measured <= self.bound if self.at_most else self.measured >= self.bound

    def cells(self) -> list[str]:
        spread = (
            f" ({format_number(self.spread[0])} to {format_number(self.spread[1])})"
            if self.spread
            else ""
        )
        return [
            self.name,
            f"{'at most' if self.at_most else 'at least'} {self.bound:g}{self.unit}",
            f"{format_number(self.measured)}{self.unit}{spread}",
            "yes" if self.met else "**no**",
        ]


@dataclass
class Report:
    """A section of the results: targets, then text and tables.

    threads: how many threads the timed calls use, as text.
    """

    title: str
    threads: str = "1"
    targets: list[Target] = field(default_factory=list)
    paragraphs: list[str] = field(default_factory=list)

    def at_most(self, name: str, bound: float, values: tuple[float, ...], unit: str = "") -> None:
        """Add a target with an upper bound. values: the measured value, then any quartiles."""
        target = Target(name, bound, values[0], values[1:], at_most=True, unit=unit)
        self.targets.append(target)

    def at_least(self, name: str, bound: float, values: tuple[float, ...], unit: str = "") -> None:
        """Add a target with a lower bound. values: the measured value, then any quartiles."""
        target = Target(name, bound, values[0], values[1:], at_most=False, unit=unit)
        self.targets.append(target)

    def say(self, *lines: str) -> None:
        self.paragraphs.append("\n".join(lines))

    def markdown(self, versions: Sequence[str] = ()) -> str:
        rows = [target.cells() for target in self.targets]
        targets = format_table(["target", "promised", "measured (quartiles)", "met"], rows)
        blocks = [
            f"## {self.title}",
            describe_machine(versions),
            describe_run(self.threads),
            targets,
            *self.paragraphs,
        ]
        return "\n\n".join(blocks) + "\n"


def format_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a markdown table. All columns except the first are aligned to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def format_timings(
    times: Times, against: dict[str, str] | None = None, unit: str = "record"
) -> str:
    """Return a table of every contender's time, rate, and ratio to another contender's time."""
    against = against or {}
    rows = []
    for name in times.contenders:
        other = against.get(name)
        ratio = f"{format_number(times.ratio(name, other)[0])} of {other}" if other else ""
        rows.append(
            [name, format_number(times.median(name)), format_number(times.rate(name)), ratio]
        )
    return format_table(["", f"ns per {unit}", "GB/s", "time, as a ratio"], rows)


def format_number(value: float) -> str:
    """Format a number with three significant digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def describe_machine(packages: Sequence[str]) -> str:
    """Describe the date, the processor, the memory, the system, and the versions of packages."""
    versions = [
        f"{name} {importlib.metadata.version(name)}" if " " not in name else name
        for name in packages
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    programs = ", ".join([f"Python {platform.python_version()}", *versions])
    return (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC; "
        f"{_processor()}, {os.cpu_count()} CPUs, {memory:.0f} GiB; "
        f"{platform.system()} {platform.release()}, load {os.getloadavg()[0]:.1f} at the end; "
        f"{programs}."
    )


def describe_run(threads: str) -> str:
    """Describe the commit, the rounds, the threads, and the seconds of the timed rounds."""
    usage = take_usage()
    rounds = ", ".join(str(number) for number in sorted(set(usage.rounds), reverse=True))
    return (
        f"Commit {read_commit()}; rounds: {rounds or 'none'}; threads: {threads}; "
        f"all rounds took {usage.wall:.1f} s of wall time and {usage.cpu:.1f} s of CPU time, "
        "child processes included."
    )


def read_commit() -> str:
    """Return the short hash of the commit. It says whether tracked files differ from it."""
    root = RESULTS.parents[1]

    def run_git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    try:
        commit = run_git("rev-parse", "--short=12", "HEAD").strip()
        changed = run_git(
            "status", "--porcelain", "--untracked-files=no", "--", ".", ":!bench/RESULTS*.md"
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{commit} + changes" if changed.strip() else commit


def _processor() -> str:
    try:
        match = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    except OSError:
        match = None
    return match[1] if match else platform.processor() or platform.machine()


def write(section: str, results: Path) -> None:
    """Write a section to a file of results. It replaces an older section with the same title."""
    text = results.read_text() if results.exists() else TITLE
    blocks = text.split("\n## ")[1:]
    sections = {block.partition("\n")[0]: "## " + block.strip() for block in blocks}
    sections[section.removeprefix("## ").partition("\n")[0]] = section.strip()
    ordered = [sections[title] for title in sorted(sections)]
    results.write_text("\n\n".join([TITLE.strip(), *ordered]) + "\n")
