"""Run the notebooks in docs/ without Jupyter, and store their outputs.

    python -m tests.support.notebook docs/incident.ipynb

runs the cells in their order and writes their outputs into the file. The outputs are text: what a
cell prints, and `repr` of the value of its last line.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any


def run_notebook(notebook: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Run the code cells of a notebook in one namespace. Return the outputs of each code cell.

    Raises what a cell raises, with a note that names the cell.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    cells = list_code_cells(notebook)
    outputs = []
    for number, cell in enumerate(cells, 1):
        try:
            outputs.append(run_cell("".join(cell["source"]), namespace, number))
        except Exception as error:
            error.add_note(f"in code cell {number} of the notebook")
            raise
    return outputs


def list_code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run_cell(source: str, namespace: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """Run a cell and return its outputs, as a notebook stores them."""
    tree = ast.parse(source)
    last = tree.body[-1]
    value = None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        if isinstance(last, ast.Expr):
            tree.body.pop()
            exec(compile(tree, f"cell {number}", "exec"), namespace)
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), namespace)
        else:
            exec(compile(tree, f"cell {number}", "exec"), namespace)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        outputs.append({"name": "stdout", "output_type": "stream", "text": text})
    if value is not None:
        outputs.append(
            {
                "data": {"text/plain": repr(value).splitlines(keepends=True)},
                "execution_count": number,
                "metadata": {},
                "output_type": "execute_result",
            }
        )
    return outputs


def store_outputs(path: Path) -> None:
    """Run a notebook, and write its outputs into the file."""
    notebook = json.loads(path.read_text())
    cells = list_code_cells(notebook)
    for number, (cell, outputs) in enumerate(zip(cells, run_notebook(notebook)), 1):
        cell["outputs"] = outputs
        cell["execution_count"] = number
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        store_outputs(Path(name))
