"""The list of planted errors fits the sources and the tests.

tests/planted_errors/run.py runs the errors.
"""

import ast
import os
import re
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from tests.planted_errors.planted import (
    PACKAGE,
    ROOT,
    Planted,
    PlantingError,
    find_place,
    plant,
    read_planted,
)
from tests.planted_errors.run import OUTPUT, VARIABLE, VARIABLES_OF_CI, split_tests

ENTRIES = read_planted()


@cache
def list_definitions(path: Path) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return the functions of a test file outside classes, by name."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    body = ast.parse(path.read_text()).body
    return {node.name: node for node in body if isinstance(node, functions)}


@cache
def list_functions(path: Path) -> set[str]:
    """Return the names of the functions and classes of a test file, as in node ids."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            inner = [method.name for method in node.body if isinstance(method, ast.FunctionDef)]
            names |= {node.name, *(f"{node.name}::{name}" for name in inner)}
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def make_id(value: object) -> str | None:
    """Return the id that pytest gives a literal value, or None if it cannot be derived."""
    if isinstance(value, str):
        return value if value.isascii() and value.isprintable() else None
    if value is None or isinstance(value, (bool, int, float)):
        return str(value)
    return None


def make_ids(call: ast.Call) -> list[str] | None:
    """Return the ids of one parametrize, or None if its arguments do not show them."""
    try:
        keywords = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
        if "ids" in keywords:
            return list(map(str, keywords["ids"]))
        names, values = map(ast.literal_eval, call.args)
    except (ValueError, TypeError):
        return None
    names = names.split(",") if isinstance(names, str) else names
    rows = [[row] if len(names) == 1 else row for row in values]
    id_rows = [[make_id(value) for value in row] for row in rows]
    if any(value_id is None for row in id_rows for value_id in row):
        return None
    ids = ["-".join(row) for row in id_rows]
    return ids if len(set(ids)) == len(ids) else None


def has_case(node: ast.FunctionDef | ast.AsyncFunctionDef, case: str) -> bool:
    """Return whether a function may have a case of that id.

    Ids that are not literals match every case.
    """
    patterns = []
    named = set()
    for decorator in reversed(node.decorator_list):  # the nearest one comes first in an id
        if not isinstance(decorator, ast.Call):
            patterns.append(".*")  # the decorator has a name, and may parametrize
        elif ast.unparse(decorator.func).endswith("parametrize"):
            ids = make_ids(decorator)
            patterns.append(".*" if ids is None else "|".join(map(re.escape, ids)))
            named |= set(re.findall(r"\w+", ast.unparse(decorator.args[0])))
    fixtures = list_arguments(node) - named - {"tmp_path", "monkeypatch"}
    if fixtures or ".*" in patterns:
        patterns.append("")
        separator = ".*"  # fixtures may have parameters too
    else:
        separator = "-"
    pattern = separator.join(f"({part})" for part in patterns)
    return bool(patterns) and re.fullmatch(pattern, case, re.DOTALL) is not None


def test_ids_are_unique():
    assert ENTRIES
    assert len({entry.id for entry in ENTRIES}) == len(ENTRIES)


@pytest.mark.skipif(
    not (ROOT / PACKAGE).is_dir(),
    reason="reads the package's sources, which are not beside the tests",
)
def test_planted_errors_fit_the_sources():
    by_path = defaultdict(list)
    for entry in ENTRIES:
        assert entry.before != entry.after, entry.id
        by_path[entry.path].append(entry)
    for path, entries in by_path.items():
        source = (ROOT / path).read_text()
        assert plant(source, entries) != source


@pytest.mark.slow
def test_pytest_finds_every_named_test():
    names = sorted({test for entry in ENTRIES for test in entry.tests})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-o", "addopts=", *names]
    collected = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert collected.returncode == 0, collected.stderr


def list_arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    return {argument.arg for argument in function.args.args}


def test_every_entry_names_tests():
    assert all(entry.tests for entry in ENTRIES)


@pytest.mark.slow
@pytest.mark.parametrize(
    "file", sorted({test.partition("::")[0] for entry in ENTRIES for test in entry.tests})
)
def test_named_tests_exist(file):
    named = [(entry, test) for entry in ENTRIES for test in entry.tests]
    for entry, test in named:
        if test.partition("::")[0] != file:
            continue
        rest = test.partition("::")[2]
        path = ROOT / file
        assert path.is_file(), f"{entry.id} names {file}, which does not exist"
        message = f"{entry.id} names {test}, which does not exist"
        function = rest.partition("[")[0]
        assert not function or function in list_functions(path), message
        node = list_definitions(path).get(function)
        case = rest.partition("[")[2].removesuffix("]")
        # A fixture may give any id.
        any_id = node is None or "params=" in path.read_text() or "stride" in list_arguments(node)
        assert not case or any_id or has_case(node, case), message


@pytest.mark.parametrize(
    "case, exists",
    [("1-a", True), ("2-b c", True), ("3-a", False), ("1-c", False), ("1", False), ("", False)],
)
def test_cases_are_known_by_their_literals(case, exists):
    source = """
@pytest.mark.parametrize("name", ["a", "b c"])
@pytest.mark.parametrize("count", [1, 2])
def test(count, name): pass
"""
    assert has_case(ast.parse(source).body[0], case) is exists
    unknown = source.replace('["a", "b c"]', "NAMES")
    assert has_case(ast.parse(unknown).body[0], "1-whatever")
    assert not has_case(ast.parse(unknown).body[0], "3-whatever")
    assert not has_case(ast.parse("def test(): pass").body[0], case)


def make_planted_error(
    before: str, after: str = "0", file: str = "limits.py", context: str = ""
) -> Planted:
    return Planted("some-error", file, before, after, ("tests/frames/test_table.py",), context)


@pytest.mark.parametrize(
    "before, context",
    [("nothing like it", ""), ("a", ""), ("a", "c = a + a"), ("a", "d = a"), ("b = 1\nc = 2", "")],
)
def test_a_text_that_does_not_occur_once_is_an_error(before, context):
    source = "a = 1\nb = 1\nc = a + a\n"
    with pytest.raises(PlantingError, match="some-error.*has to occur exactly once"):
        find_place(make_planted_error(before, context=context), source)


def test_expressions_and_statements_get_a_switch():
    source = "def f(x):\n    if x > 1:\n        x = 2 * x\n    return x\n"
    for number in (0, 1):
        for before, after, expected in (
            ("x > 1", "x > 5", {0: 6, 1: 3}),
            ("x = 2 * x", "pass", {0: 6, 1: 3}),
            ("if x > 1:\n    x = 2 * x", "x = 7", {0: 6, 1: 7}),
        ):
            space = {"_planted_error": lambda of, on=bool(number): on}
            exec(plant(source, [make_planted_error(before, after)]), space)
            assert space["f"](3) == expected[number]


def test_overlapping_and_broken_expressions_are_errors():
    with pytest.raises(PlantingError, match="no whole expression"):
        plant("a = 2 * x + 1\n", [make_planted_error("x + 1")])
    with pytest.raises(PlantingError, match="overlap"):
        plant("a = f(x) + 1\n", [make_planted_error("f(x)"), make_planted_error("f(x) + 1")])


def test_a_planted_file_that_is_no_python_is_an_error():
    source = "if x > 1:\n    x = 2\nelse:\n    x = 3\n"
    with pytest.raises(PlantingError, match="no Python: expected an indented block"):
        plant(source, [make_planted_error("if x > 1:", "if x > 5:")])


@pytest.mark.parametrize("is_planted", [False, True])
def test_only_runs_of_planted_errors_do_not_shrink_examples(is_planted):
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    if is_planted:
        environment[VARIABLE] = "0"
    program = "import tests.conftest, hypothesis as h; print(h.Phase.shrink in h.settings().phases)"
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.stdout == f"{not is_planted}\n", run.stderr


@pytest.mark.parametrize("name", VARIABLES_OF_CI)
def test_failures_under_planted_errors_show_no_whole_differences(name, monkeypatch, tmp_path):
    monkeypatch.setenv(name, "true")
    (tmp_path / "test_unequal.py").write_text("def test(): assert [1] == [2]\n")
    program = (
        "import sys; from pathlib import Path; from tests.planted_errors.run import run_tests;"
        "run_tests(Path(sys.argv[1]), ['test_unequal.py'], 0, sys.argv[1])"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=ROOT)
    assert "Use -v to get more diff" in Path(tmp_path, OUTPUT).read_text()


@pytest.mark.parametrize("count", [1, 2, 3, 8, 100])
def test_tests_are_split_by_file(count):
    tests = [f"tests/test_{file}.py::test_{n}" for n in range(3) for file in "abcdefgh"]
    parts = split_tests(tests, count)
    assert sorted(sum(parts, [])) == sorted(tests)
    assert len(parts) == min(count, 8)
    files = [{test.partition("::")[0] for test in part} for part in parts]
    assert sum(map(len, files)) == len(set().union(*files))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 3
