"""The notebook in docs/ runs, and has the outputs that are stored in it."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.support.notebook import list_code_cells, run_cell, run_notebook, store_outputs
from tests.support.paths import ROOT

PATH = ROOT / "docs/incident.ipynb"


def read_notebook():
    return json.loads(PATH.read_text())


def test_the_outputs_are_those_that_are_stored():
    notebook = read_notebook()
    cells = list_code_cells(notebook)
    assert [cell["outputs"] for cell in cells] == run_notebook(notebook)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))


def test_the_notebook_is_of_the_format_that_jupyter_reads():
    notebook = read_notebook()
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    for cell in notebook["cells"]:
        expected = {"cell_type", "id", "metadata", "source"}
        if cell["cell_type"] == "code":
            expected |= {"execution_count", "outputs"}
        assert set(cell) == expected
    assert PATH.stat().st_size < 20_000


def test_storing_the_outputs_again_changes_nothing(tmp_path):
    copy = tmp_path / "copy.ipynb"
    shutil.copy(PATH, copy)
    store_outputs(copy)
    assert copy.read_text() == PATH.read_text()


def test_a_cell_shows_what_it_prints_and_its_last_value():
    printed = {"name": "stdout", "output_type": "stream", "text": ["a\n", "b\n"]}
    value = {
        "data": {"text/plain": ["[3]"]},
        "execution_count": 7,
        "metadata": {},
        "output_type": "execute_result",
    }
    assert run_cell("print('a\\nb')\n[3]", {}, 7) == [printed, value]
    assert run_cell("x = 3", {}, 7) == run_cell("None", {}, 7) == []


def test_an_error_names_its_cell():
    cells = [{"cell_type": "code", "source": [source]} for source in ("x = 1", "x / 0")]
    with pytest.raises(ZeroDivisionError) as caught:
        run_notebook({"cells": cells})
    assert caught.value.__notes__ == ["in code cell 2 of the notebook"]
