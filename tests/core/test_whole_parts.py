"""A kernel that returns SHORT may say which first bytes are whole parts of the frame.

Such parts can look like frames, so no other frame is searched for in them. No format of wirescan
has such frames. So these tests compile a small format of their own: whole_parts.pyx.
"""

import importlib.util
import shutil
from pathlib import Path

import pytest

from tests.support.outside import has_working_compiler, make_environment, run_python
from wirescan.core.fault import Fault
from wirescan.frames.limits import Limits

NAME = "whole_parts"
SOURCE = Path(__file__).with_name(f"{NAME}.pyx")
BUILD = f"""
from Cython.Build import cythonize
from setuptools import Extension, setup
import wirescan

module = Extension("{NAME}", ["{SOURCE.name}"], include_dirs=[wirescan.get_include()])
setup(ext_modules=cythonize([module]), script_args=["-q", "build_ext", "--inplace"])
"""

pytestmark = pytest.mark.skipif(
    not has_working_compiler(), reason="compiles a kernel, which needs a C compiler"
)


@pytest.fixture(scope="module")
def lists(tmp_path_factory):
    """Compile and import the format."""
    folder = tmp_path_factory.mktemp(NAME)
    shutil.copy(SOURCE, folder)
    run_python("-c", BUILD, folder=folder, environment=make_environment(folder))
    (path,) = folder.glob(f"{NAME}.*[!xc]")
    spec = importlib.util.spec_from_file_location(NAME, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def scan(lists, raw, *, more=False):
    """Return (the bytes of each row with its fault, why the scan ended, its position)."""
    rows, _, fault, position = lists.scan(raw, more, Limits())
    frames = [(raw[row["start"] :][: row["size"]], Fault(row["fault"])) for row in rows]
    return frames, Fault(fault), position


def test_good_lists_and_texts_are_frames(lists):
    frames = [(b"2ab", Fault.OK), (b"[1a0]", Fault.OK), (b"[]", Fault.OK)]
    assert scan(lists, b"2ab[1a0][]") == (frames, Fault.OK, 10)


@pytest.mark.parametrize("raw", [b"[1a", b"[1a0", b"[1a2bc", b"[1a9"])
@pytest.mark.parametrize("more", [False, True])
def test_whole_parts_of_a_cut_frame_are_not_frames(lists, raw, more):
    assert scan(lists, b"1x" + raw, more=more) == ([(b"1x", Fault.OK)], Fault.SHORT, 2)


def test_frames_are_searched_for_after_the_whole_parts(lists):
    """The size 9 is damaged, because an intact frame begins inside these nine bytes."""
    frames = [(b"[1a9b", Fault.BAD_LENGTH), (b"1c", Fault.OK)]
    assert scan(lists, b"[1a9b1c") == (frames, Fault.OK, 7)


def test_whole_parts_count_only_where_the_bytes_end(lists):
    """After a hard fault, the frame itself is damage, and its parts may be frames."""
    frames = [
        (b"[", Fault.NOT_A_FRAME),
        (b"1a", Fault.OK),
        (b"?", Fault.NOT_A_FRAME),
        (b"1b", Fault.OK),
    ]
    assert scan(lists, b"[1a?1b") == (frames, Fault.OK, 6)
