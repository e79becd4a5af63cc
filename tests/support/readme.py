"""The commands and examples in the README and the documents."""

from __future__ import annotations

import re

from tests.support.paths import ROOT

README = (ROOT / "README.md").read_text()
PAGES = (
    "command-line",
    "kafka",
    "lumberjack",
    "nats",
    "liftbridge",
    "thrift",
    "bad-input",
    "dataframes",
    "lazy-sources",
)
FUNCTIONS_OF_SPARK = re.search(
    r"<!-- all-functions -->\n(```python.*?```)", (ROOT / "docs/spark.md").read_text(), re.DOTALL
)
TEXT = "\n".join(
    [README, *((ROOT / "docs" / f"{page}.md").read_text() for page in PAGES), FUNCTIONS_OF_SPARK[1]]
)


def find_blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def find_block(word: str) -> str:
    """Return the only block of Python that contains a word."""
    (code,) = (code for code in find_blocks("python") if word in code)
    return code
