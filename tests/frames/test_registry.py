"""Formats of other packages: entry points of the group "wirescan.formats", and `register`."""

import importlib.metadata
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint

import numpy as np
import pytest

import wirescan
from wirescan import Column, Format
from wirescan.core.loop import HEAD
from wirescan.frames import registry


@pytest.fixture
def install(monkeypatch):
    """Return a function that declares entry points, as installed packages do."""

    def declare(*modules):
        points = [EntryPoint(module, module, registry.GROUP) for module in modules]
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points)
        registry.import_installed_formats.cache_clear()

    yield declare
    registry.import_installed_formats.cache_clear()


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The name of a module that registers the format "other.frames"."""
    (tmp_path / "other_protocol.py").write_text(
        "from dataclasses import replace\n"
        "import wirescan\n"
        "known = wirescan.frames.registry.format_of('nats.messages')\n"
        "wirescan.register(replace(known, name='other.frames'))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    known = dict(registry.load_formats())
    yield "other_protocol"
    sys.modules.pop("other_protocol", None)
    registry.load_formats().clear()
    registry.load_formats().update(known)


def test_an_installed_format_is_found_by_its_name(install, package):
    install(package)
    assert "other.frames" not in registry.load_formats()
    assert registry.format_of("other.frames").name == "other.frames"
    assert len(wirescan.scan(b"PING\r\n", "other.frames")) == 1
    assert "other.frames" in wirescan.formats()


def test_a_known_format_needs_no_other_package(install):
    install("module_that_does_not_exist")
    assert registry.format_of("nats.messages").name == "nats.messages"


def test_a_package_that_cannot_be_imported_is_a_warning(install, package):
    install("module_that_does_not_exist", package)
    with pytest.warns(RuntimeWarning, match="module_that_does_not_exist are missing.*No module"):
        known = wirescan.formats()
    assert {"other.frames", "nats.messages"} <= set(known)
    with pytest.raises(ValueError, match="no format 'x'"):
        registry.format_of("x")


TWICE = {
    "a column and a place": [("v", "i8"), ("v_at", "u4"), ("v_size", "i4")],
    "a column of Head and a place": [("fault_at", "u4"), ("fault_size", "i4")],
    "the path": [("_file", "i8")],
    "the position": [("_start_at", "u4"), ("_start_size", "i4")],
    "the innermost fault": [("_fault", "i8")],
}


@pytest.mark.parametrize("added", TWICE.values(), ids=TWICE)
def test_two_columns_with_one_name_are_refused(added):
    dtype = np.dtype([*((name, HEAD[name]) for name in HEAD.names), *added])
    before = wirescan.formats()
    name = added[0][0].removesuffix("_at")
    with pytest.raises(ValueError, match=f"'other.frames' has two columns with the name '{name}'"):
        wirescan.register(Format("other.frames", "frames", dtype, wirescan.scan))
    assert wirescan.formats() == before


def test_a_computed_column_with_the_name_of_another_is_refused():
    known = registry.format_of("nats.messages")
    columns = {**known.columns, "payload": Column(compute_texts=len)}
    with pytest.raises(ValueError, match="two columns with the name 'payload'"):
        wirescan.register(replace(known, name="other.frames", columns=columns))
