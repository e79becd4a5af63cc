"""Completion by the shell, and manual pages."""

import os
import subprocess
import sys

import pytest
from click.shell_completion import get_completion_class

from tests.support.command import START, make_environment, run
from tests.support.paths import ROOT
from wirescan.cli.main import VERBS, main
from wirescan.cli.verbs.manual import escape
from wirescan.decoding.notation import MAKERS
from wirescan.frames.value_text import ENCODINGS

HEADERS = [f"plain,headers={name}" for name in ENCODINGS]
DECODERS = list(MAKERS)
VALUE_DECODERS = [f"plain,value={name}" for name in DECODERS]
VALUE_DECODERS_OF_BASH = [f"plain,{name}" for name in DECODERS]


@pytest.fixture
def complete(monkeypatch):
    """Return a function that returns the lines that a shell would be offered for the last word."""
    run("--version")  # declares the completion of each shell

    def complete_last(shell, *words):
        current = words[-1] if shell == "fish" else str(len(words) - 1)
        monkeypatch.setenv("COMP_WORDS", " ".join(words))
        monkeypatch.setenv("COMP_CWORD", current)
        completion = get_completion_class(shell)(main, {}, "wirescan", "_WIRESCAN_COMPLETE")
        return completion.complete().splitlines()

    return complete_last


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("wirescan", "sc"), ["plain,scan"]),
        (("wirescan", "scan", "--format", "kafka.records"), ["plain,kafka.records"]),
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
        (("wirescan", "fetch", "h:1", "t", "--columns", "of"), ["plain,offset"]),
        (("wirescan", "receive", "lumberjack", "--columns", "se"), ["plain,sequence"]),
        (("wirescan", "scan", "x", "--encoding", "he"), [*HEADERS, "plain,hex"]),
        (
            ("wirescan", "scan", "x", "--encoding", "hex,key=u"),
            ["plain,hex,key=utf8", "plain,hex,key=uuid"],
        ),
        (("wirescan", "scan", "x", "--decode", ""), ["plain,key=", "plain,value="]),
        (("wirescan", "scan", "x", "--decode", "val"), VALUE_DECODERS),
        (("wirescan", "convert", "x", "out", "--decode", "value=js"), ["plain,value=json"]),
        (("wirescan", "scan", "x", "--decode", "value=json:a"), ["file,value=json:a"]),
        # bash passes "=" and ":" as words, and replaces the part after them.
        (("wirescan", "scan", "x", "--decode", "value", "=", "js"), ["plain,json"]),
        (("wirescan", "scan", "x", "--decode", "value", "="), VALUE_DECODERS_OF_BASH),
        (
            ("wirescan", "scan", "x", "--decode", "value", "=", "json", ":", "a"),
            ["file,value=json:a"],
        ),
        (
            ("wirescan", "scan", "x", "--encoding", "key", "=", "int,value", "=", "b"),
            ["plain,base64"],
        ),
        (("wirescan", "scan", "x", "--decode", "=", "value", "=", "js"), ["plain,json"]),
        (("wirescan", "scan", "x", "--columns", "=", "offset,cod"), ["plain,offset,codec"]),
        (("wirescan", "scan", "--format", "thrift.calls", "--idl", "a.th"), ["file,a.th"]),
        (("wirescan", "scan", "x", "-o", "ou"), ["file,ou"]),
        (("wirescan", "salvage", "x", "--to", "ou"), ["dir,ou"]),
        (("wirescan", "receive", "lumberjack", "--tls", "cert", "ke"), ["file,ke"]),
        (("wirescan", "fetch", "h:1", "t", "--password-file", "pa"), ["file,pa"]),
        (("wirescan", "nothing", "scan"), ["plain,scan"]),
        (("wirescan", "scan", "--templ"), ["plain,--template"]),
    ],
)
def test_words_are_completed(complete, words, offered):
    assert complete("bash", *words) == offered


@pytest.fixture
def complete_whole_word(complete, tmp_path, monkeypatch):
    """Return a function that returns (type, value) of what zsh or fish would be offered."""
    monkeypatch.chdir(tmp_path)

    def complete_last(shell, *words):
        lines = complete(shell, *words)
        if shell == "zsh":
            return list(zip(lines[::3], lines[1::3]))
        return [tuple(line.split(",", 1)) for line in lines]

    return complete_last


@pytest.mark.parametrize("shell", ["zsh", "fish"])
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("--decode", "value=json:or"), ["value=json:order.avsc", "value=json:orders/"]),
        (("--decode", "value=json:orders/"), ["value=json:orders/a.json"]),
        (("--decode", "value=json:nowhere/"), []),
        (("--decode=value=json:order.",), ["--decode=value=json:order.avsc"]),
        (
            ("--decode", "value=avro:order.avsc,registry=orders"),
            ["value=avro:order.avsc,registry=orders/"],
        ),
        (("--decode", "value=js"), ["value=json"]),
        (("--columns", "offset,cod"), ["offset,codec"]),
        (("--columns=offset,cod",), ["--columns=offset,codec"]),
        (("--idl=ord",), ["--idl=order.avsc", "--idl=orders/"]),
        (("--templ",), ["--template"]),
    ],
)
def test_zsh_and_fish_get_whole_words(tmp_path, complete_whole_word, shell, words, offered):
    for path in ("order.avsc", "other", ".orders"):
        (tmp_path / path).touch()
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders/a.json").touch()
    items = complete_whole_word(shell, "wirescan", "scan", "x", *words)
    assert {kind for kind, _ in items} <= {"plain"}
    assert [value.partition("\t")[0] for _, value in items] == offered


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_zsh_and_fish_complete_paths_that_are_whole_words(complete_whole_word, shell):
    words = ("wirescan", "scan", "ord")
    assert complete_whole_word(shell, *words) == [("file", "ord")]
    words = ("wirescan", "salvage", "x", "--to", "ord")
    assert complete_whole_word(shell, *words) == [("dir", "ord")]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_only_directories_are_offered_for_a_directory(tmp_path, complete_whole_word, shell):
    (tmp_path / "order").touch()
    (tmp_path / "orders").mkdir()
    words = ("wirescan", "salvage", "x", "--to=ord")
    assert complete_whole_word(shell, *words) == [("plain", "--to=orders/")]


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
    if shell == "fish":
        assert 'string split -m 1 ","' in done.stdout  # items have commas


@pytest.fixture
def run_bash(tmp_path):
    """Return a function that runs bash after the documented line, and returns its output."""
    (tmp_path / "wirescan").write_text(f'#!/bin/sh\nexec {sys.executable} -m wirescan "$@"\n')
    (tmp_path / "wirescan").chmod(0o755)
    environment = make_environment(PATH=f"{tmp_path}:{os.environ['PATH']}")

    def run_lines(lines):
        script = f'eval "$(_WIRESCAN_COMPLETE=bash_source wirescan)"; {lines}'
        done = subprocess.run(
            ["bash", "-c", script], env=environment, capture_output=True, text=True
        )
        return done.stdout + done.stderr

    return run_lines


def test_bash_takes_the_documented_line(run_bash):
    assert "-F _wirescan_completion wirescan" in run_bash("complete -p wirescan")


def test_bash_completes_the_part_after_an_equals_sign(run_bash):
    words = "COMP_WORDS=(wirescan scan x --decode value = js); COMP_CWORD=6"
    output = run_bash(f'{words}; _wirescan_completion wirescan; echo "${{COMPREPLY[@]}}"')
    assert output == "json\n"


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
