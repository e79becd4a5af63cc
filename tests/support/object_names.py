"""Names of objects, and globs that match some of them in stores as in folders."""

from pathlib import Path

NAMES = (
    "a.log",
    "b.txt",
    "deep/c.log",
    "deep/er/d.log",
    "deep/er/.hidden.log",
    ".hid/e.log",
    "x-1/y/f.log",
    "x-2/y/g.log",
    "x-2/z/h.log",
    "odd [a]*?#%20 name.log",
    "snow \N{SNOWMAN}.log",
    "a.log.frames.json",
)
GLOBS = (
    "",
    "*",
    "*.log",
    "[ab].*",
    "?.log",
    "**",
    "**/*.log",
    "deep/**",
    "deep/**/*.log",
    "**/er",
    "**/er/*",
    "x-*/y/*.log",
    "x-?/*/h.log",
    "x-*",
    "*/y",
    ".*/*",
    "**/.hidden.log",
    "deep/*/d.log",
    "d*/er/d.log",
)


def write_tree(folder: Path) -> Path:
    """Write a file for each name, with the name as its content. Return the folder."""
    for name in NAMES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode())
    return folder
