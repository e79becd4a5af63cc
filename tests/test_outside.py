"""External protocol packages are built against the installed .pxd files and keep the laws.

The page docs/your-own-protocol.md has the code of wirescan-resp.
"""

import re
import shutil
from pathlib import Path

import pytest

from tests.support.outside import (
    OUTSIDE,
    has_working_compiler,
    install_resp,
    make_environment,
    run_python,
    run_tests_of_resp,
)
from tests.support.paths import ROOT

TESTS = (
    "laws_of_netstrings.py",
    "faults_of_netstrings.py",
    "reading_netstrings.py",
    "captured_netstrings.py",
)
PAGE = ROOT / "docs" / "your-own-protocol.md"
RESP = OUTSIDE / "resp"
# A block of code of the page, after a comment with the name of its file.
BLOCK = re.compile(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", re.DOTALL)
KERNEL = Path("netstrings", "scan.pyx")
PLACE = "sized(&body, start, <int32_t>size, &row.text_at, &row.text_size)"
# Errors of the kernel: (line, wrong line, the test that finds it, a part of its message).
BROKEN = {
    "a byte after the buffer is read": (
        "skip_digits(start, r.end, MOST_DIGITS)",
        "skip_digits(start, r.end + 1, MOST_DIGITS)",
        "test_netstrings_keep_the_laws",
        "a scan of netstrings reads bytes outside its buffer",
    ),
    "a frame that the end of the bytes cuts is damage": (
        "return SHORT ",
        "return NOT_A_FRAME ",
        "test_netstrings_keep_the_laws",
        "breaks the law 'streams agree'",
    ),
    "a place ends after its frame": (
        "sized(&body, start, <int32_t>size, ",
        "sized(&body, start - 2, <int32_t>size, ",
        "test_netstrings_keep_the_laws",
        "text ends after its frame",
    ),
    "a place stays in a bad row that ends at a frame inside it": (
        "return TRUNCATED ",
        f"return <Fault>(TRUNCATED | {PLACE}) ",
        "test_netstrings_keep_the_laws",
        "text ends after its frame",
    ),
    "the last byte of the text is lost": (
        "sized(&body, start, <int32_t>size, ",
        "sized(&body, start, <int32_t>size - (size > 0), ",
        "test_netstrings_agree_with_the_slow_decoder",
        "'text_size': 4",
    ),
}

# What the comments of the example of captures say.
CHECKS = """
assert exchanges["name"].to_pylist() == [b"GET", b"INCR"]
assert exchanges["latency"].tolist() == [2000000, 2000000]
assert len(frames) == 4
table = exchanges.to_arrow(["client", "reply_kind"])
assert table["client"].to_pylist() == ["10.0.0.1:40000"] * 2
assert table["reply_kind"].to_pylist() == [resp.Kind.BULK_STRING, resp.Kind.ERROR]
"""

needs_compiler = pytest.mark.skipif(
    not has_working_compiler(), reason="builds a package, which needs a C compiler"
)


def copy_netstrings(folder):
    """Return a copy of the package, which is not built."""
    package = folder / "package"
    shutil.copytree(OUTSIDE, package, ignore=shutil.ignore_patterns("resp"))
    return package


def build_netstrings(package):
    build = ("setup.py", "-q", "egg_info", "build_ext", "--inplace")
    run_python(*build, folder=package, environment=make_environment(package))


def run_tests_of_netstrings(package, *tests):
    command = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", package, *tests)
    run_python(*command, folder=package, environment=make_environment(package))


@pytest.mark.slow
@needs_compiler
def test_a_package_outside_wirescan(tmp_path):
    package = copy_netstrings(tmp_path)
    build_netstrings(package)
    run_tests_of_netstrings(package, *TESTS)


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("error", BROKEN)
def test_the_laws_find_a_broken_kernel(tmp_path, error):
    line, wrong_line, test, message = BROKEN[error]
    package = copy_netstrings(tmp_path)
    source = (package / KERNEL).read_text()
    assert source.count(line) == 1
    (package / KERNEL).write_text(source.replace(line, wrong_line))
    build_netstrings(package)
    with pytest.raises(AssertionError) as raised:
        run_tests_of_netstrings(package, f"laws_of_netstrings.py::{test}")
    assert message in str(raised.value)


@pytest.mark.slow
@needs_compiler
def test_the_package_of_the_tutorial(tmp_path):
    environment = install_resp(tmp_path)
    run_tests_of_resp(tmp_path, environment)
    page = PAGE.read_text()
    (code,) = re.findall(r"```python\n(import wirescan,.*?)```", page, re.DOTALL)
    writes = "\nopen('commands.resp', 'wb').write(raw)\n"
    run_python("-c", code + writes, folder=tmp_path, environment=environment)
    (captures,) = re.findall(r"<!-- example: captures -->\n```python\n(.*?)```", page, re.DOTALL)
    run_python("-c", captures + CHECKS, folder=tmp_path, environment=environment)
    blocks = re.findall(r"```sh\n(wirescan .*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    for command in "".join(blocks).splitlines():
        arguments = ("-m", *command.split("#")[0].split())
        run_python(*arguments, folder=tmp_path, environment=environment)


@pytest.mark.spark
@pytest.mark.nightly
@needs_compiler
def test_the_package_of_the_tutorial_in_spark(tmp_path):
    environment = install_resp(tmp_path)
    run_tests_of_resp(tmp_path, environment, "-m", "spark", "tests/test_use.py")


def list_lines(text):
    """Return the lines of a text that are not empty."""
    return [line for line in text.splitlines() if line]


def test_the_tutorial_has_the_code_of_the_package():
    """The blocks of a file, in the order of the page, are the whole file."""
    lines = {}
    for name, code in BLOCK.findall(PAGE.read_text()):
        lines.setdefault(name, []).extend(list_lines(code))
    sources = [RESP / "pyproject.toml", RESP / "setup.py", *sorted(RESP.glob("wirescan_resp/*.p*"))]
    names = [path.relative_to(RESP).as_posix() for path in sources]
    assert set(names) <= set(lines)
    for name, code in lines.items():
        assert code == list_lines((RESP / name).read_text()), name
