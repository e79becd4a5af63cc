"""The figures of docs/comparison.md are lines of bench/RESULTS.md, of the dates that it states."""

import re

import pytest

from tests.support.paths import ROOT

RESULTS = ROOT / "bench/RESULTS.md"
PAGE = (ROOT / "docs/comparison.md").read_text()
TABLES = re.findall(r"<!-- figures: (.+), (\S+) -->\n((?:\|.*\n)+)", PAGE)


def find_section(name: str) -> str:
    return RESULTS.read_text().partition(f"\n## {name}\n")[2].partition("\n## ")[0]


@pytest.mark.skipif(not RESULTS.exists(), reason="the sdist has no results of benchmarks")
@pytest.mark.parametrize(("section", "date", "table"), TABLES)
def test_figures_are_those_of_the_results(section, date, table):
    assert f"{date}. " in PAGE
    measured = find_section(section)
    assert measured.lstrip().startswith(date), f"docs/comparison.md has figures of {date}"
    assert "AMD EPYC, 2 CPUs, 24 GiB" in measured
    missing = [line for line in table.splitlines() if line not in measured.splitlines()]
    assert not missing, "copy these lines from bench/RESULTS.md again"


def test_each_table_of_figures_is_compared():
    assert PAGE.count("figures: ") == len(TABLES) == 4
