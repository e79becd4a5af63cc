"""What a run says: markdown tables, the targets first, and the machine that they hold for."""
from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from bench.measure import Times

RESULTS = Path(__file__).with_name("RESULTS.md")
TITLE = "# Results\n\nWritten by `python -m bench`; bench/__init__.py says how to run it.\n"


@dataclass
class Target:
    """A promise and what became of it. spread: the quartiles. at_most: it is an upper bound, else a lower one."""
    what: str
    bound: float
    seen: float
    spread: tuple[float, ...]
    at_most: bool
    unit: str

    @property
    def met(self) -> bool:
        return self.seen <= self.bound if self.at_most else self.seen >= self.bound

    def cells(self) -> list[str]:
        spread = f" ({number(self.spread[0])} to {number(self.spread[1])})" if self.spread else ""
        return [self.what, f"{'at most' if self.at_most else 'at least'} {self.bound:g}{self.unit}",
                f"{number(self.seen)}{self.unit}{spread}", "yes" if self.met else "**no**"]


@dataclass
class Report:
    """One part of the results: targets, then tables with a word on what they show."""
    title: str
    targets: list[Target] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)

    def at_most(self, what: str, bound: float, seen: tuple[float, ...], unit: str = "") -> None:
        """A figure with an upper bound; seen: the figure, and its quartiles where it has them."""
        self.targets.append(Target(what, bound, seen[0], seen[1:], True, unit))

    def at_least(self, what: str, bound: float, seen: tuple[float, ...], unit: str = "") -> None:
        """The same with a lower bound."""
        self.targets.append(Target(what, bound, seen[0], seen[1:], False, unit))

    def say(self, *lines: str) -> None:
        self.parts.append("\n".join(lines))

    def markdown(self, versions: Sequence[str] = ()) -> str:
        seen = [target.cells() for target in self.targets]
        return "\n\n".join([
            f"## {self.title}", machine(versions),
            table(["target", "promised", "seen (quartiles)", "met"], seen), *self.parts]) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A markdown table; all columns but the first lean to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def timings(times: Times, against: dict[str, str] | None = None, unit: str = "record") -> str:
    """Every contender's time and rate, and its ratio to another one's time."""
    against = against or {}
    rows = []
    for name in times.contenders:
        other = against.get(name)
        ratio = f"{number(times.ratio(name, other)[0])} of {other}" if other else ""
        rows.append([name, number(times.median(name)), number(times.rate(name)), ratio])
    return table(["", f"ns per {unit}", "GB/s", "time, as a ratio"], rows)


def number(value: float) -> str:
    """Three significant digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def machine(packages: Sequence[str]) -> str:
    """Processor, memory, system, date, and the versions of what takes part."""
    versions = [f"{name} {importlib.metadata.version(name)}" if " " not in name else name for name in packages]
    load = f"{os.getloadavg()[0]:.1f}"
    return (f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC; {_processor()}, {os.cpu_count()} CPUs, "
            f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB; {platform.system()} "
            f"{platform.release()}, load {load} at the end; Python {platform.python_version()}"
            + "".join(f", {version}" for version in versions) + ".")


def _processor() -> str:
    try:
        found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def write(section: str) -> None:
    """Put a section into RESULTS.md in the place of an older one of its title; the others stay."""
    text = RESULTS.read_text() if RESULTS.exists() else TITLE
    sections = {part.partition("\n")[0]: "## " + part.strip() for part in text.split("\n## ")[1:]}
    sections[section.removeprefix("## ").partition("\n")[0]] = section.strip()
    RESULTS.write_text("\n\n".join([TITLE.strip(), *(sections[title] for title in sorted(sections))]) + "\n")
