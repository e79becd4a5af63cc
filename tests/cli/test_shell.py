"""Completion by the shell, and manual pages."""

import os
import subprocess
import sys

import pytest

from tests.support.command import START, make_environment, run
from tests.support.paths import ROOT
from wirescan.cli.main import VERBS
from wirescan.cli.verbs.manual import escape


def complete(*words):
    """Return what bash would be offered for the last of some words."""
    variables = {
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
        "_WIRESCAN_COMPLETE": "bash_complete",
    }
    command = [sys.executable, "-c", START]
    done = subprocess.run(
        command, env=make_environment(**variables), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("wirescan", "sc"), ["plain,scan"]),
        (("wirescan", "scan", "--format", "kafka.rec"), ["plain,kafka.records"]),
        (
            ("wirescan", "scan", "x", "--columns", "offset,key"),
            ["plain,offset,key", "plain,offset,key_at", "plain,offset,key_size"],
        ),
        (
            ("wirescan", "scan", "--format", "lumberjack.events", "--columns", "seq"),
            ["plain,sequence"],
        ),
        (("wirescan", "convert", "--compression", "z"), ["plain,zstd"]),
        (("wirescan", "scan", "ord"), ["file,ord"]),
        (("wirescan", "fetch", "h:1", "t", "--columns", "of"), [""]),
        (("wirescan", "receive", "lumberjack", "--columns", "se"), [""]),
        (("wirescan", "nothing", "scan"), ["plain,scan"]),
        (("wirescan", "scan", "--templ"), ["plain,--template"]),
    ],
)
def test_words_are_completed(words, offered):
    assert complete(*words) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_documented_line_has_a_script_for_each_shell(shell):
    page = (ROOT / "docs/command-line.md").read_text()
    assert f"_WIRESCAN_COMPLETE={shell}_source wirescan" in page
    environment = make_environment(_WIRESCAN_COMPLETE=f"{shell}_source")
    done = subprocess.run(
        [sys.executable, "-c", START], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0
    assert f"{shell}_complete" in done.stdout


def test_bash_takes_the_documented_line(tmp_path):
    (tmp_path / "wirescan").write_text(f'#!/bin/sh\nexec {sys.executable} -m wirescan "$@"\n')
    (tmp_path / "wirescan").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    script = 'eval "$(_WIRESCAN_COMPLETE=bash_source wirescan)"; complete -p wirescan'
    done = subprocess.run(
        ["bash", "-c", script], env=make_environment(PATH=path), capture_output=True, text=True
    )
    assert "-F _wirescan_completion wirescan" in done.stdout, done.stderr


def test_each_verb_has_a_page(tmp_path):
    result = run("manual", tmp_path / "man1")
    assert result.exit_code == 0, result.output
    pages = {path.name: path.read_text() for path in (tmp_path / "man1").iterdir()}
    assert set(pages) == {"wirescan.1", *(f"wirescan-{verb}.1" for verb in VERBS)}
    for name, page in pages.items():
        assert page.startswith(f".TH {name.removesuffix('.1').upper()} 1 ")
        assert all(f".SH {part}" in page for part in ("NAME", "SYNOPSIS", "DESCRIPTION"))
    assert ".B \\-\\-template TEXT" in pages["wirescan-scan.1"]
    assert "  wirescan scan orders\\-0 \\-\\-limit 20" in pages["wirescan-scan.1"]
    for verb in VERBS:
        assert f".BR wirescan\\-{verb} (1)" in pages["wirescan.1"]


@pytest.mark.peers
def test_groff_reads_the_pages_without_a_warning(tmp_path):
    run("manual", tmp_path)
    for path in sorted(tmp_path.iterdir()):
        done = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww", str(path)], capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, ""), path.name
        assert "General Commands Manual" in done.stdout


def test_text_has_no_meaning_for_man():
    assert escape(".TH \\n") == "\\&.TH \\en"
    assert escape("'x") == "\\&'x"
    assert escape("a-b") == "a\\-b"
