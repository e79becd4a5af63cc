"""The list of planted errors fits the sources and the tests. tests/planted_errors/run.py runs them."""
import ast
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "planted_errors"))

from planted import ROOT, Planted, PlantingError, find_place, plant, read_planted  # noqa: E402

ENTRIES = read_planted()


@cache
def functions_of(path: Path) -> set[str]:
    """The names of the functions and classes of a test file, as node ids have them."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            inner = [one.name for one in node.body if isinstance(one, ast.FunctionDef)]
            names |= {node.name, *(f"{node.name}::{name}" for name in inner)}
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def test_ids_are_unique():
    assert ENTRIES
    assert len({entry.id for entry in ENTRIES}) == len(ENTRIES)


def test_planted_errors_fit_the_sources():
    by_path = defaultdict(list)
    for entry in ENTRIES:
        assert entry.before != entry.after, entry.id
        by_path[entry.path].append(entry)
    for path, entries in by_path.items():
        source = (ROOT / path).read_text()
        assert plant(source, entries) != source


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_named_tests_exist(entry):
    assert entry.tests
    for test in entry.tests:
        file, _, rest = test.partition("::")
        path = ROOT / file
        assert path.is_file(), f"{entry.id} names {file}, which is not there"
        function = rest.partition("[")[0]
        assert not function or function in functions_of(path), f"{entry.id} names {test}, which is not there"


def planted_error(before: str, after: str = "0", file: str = "limits.py", context: str = "") -> Planted:
    return Planted("some-error", file, before, after, ("tests/test_table.py",), context)


@pytest.mark.parametrize("before, context", [
    ("nothing like it", ""), ("a", ""), ("a", "c = a + a"), ("a", "d = a"), ("b = 1\nc = 2", "")])
def test_a_text_that_does_not_occur_once_is_an_error(before, context):
    source = "a = 1\nb = 1\nc = a + a\n"
    with pytest.raises(PlantingError, match="some-error.*has to occur exactly once"):
        find_place(planted_error(before, context=context), source)


def test_expressions_and_statements_get_a_switch():
    source = "def f(x):\n    if x > 1:\n        x = 2 * x\n    return x\n"
    for number in (0, 1):
        for before, after, expected in (
                ("x > 1", "x > 5", {0: 6, 1: 3}), ("x = 2 * x", "pass", {0: 6, 1: 3}),
                ("if x > 1:\n    x = 2 * x", "x = 7", {0: 6, 1: 7})):
            space = {"_planted_error": lambda of, on=bool(number): on}
            exec(plant(source, [planted_error(before, after)]), space)
            assert space["f"](3) == expected[number]


def test_overlapping_and_broken_expressions_are_errors():
    with pytest.raises(PlantingError, match="no whole expression"):
        plant("a = 2 * x + 1\n", [planted_error("x + 1")])
    with pytest.raises(PlantingError, match="overlap"):
        plant("a = f(x) + 1\n", [planted_error("f(x)"), planted_error("f(x) + 1")])
