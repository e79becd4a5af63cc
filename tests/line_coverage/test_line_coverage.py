"""The coverage report maps lines of generated C code to lines of kernels."""

from tests.line_coverage import report
from tests.line_coverage.exclusions import Exclusion

C_TEXT = """
static int f(int x) {
  /* "wirescan/a.pyx":3
 * cdef int f(int x):
 *     if x:             # <<<<<<<<<<<<<<
*/
  if (x) {
    /* "wirescan/a.pyx":4
 *         return 1             # <<<<<<<<<<<<<<
*/
    r = 1;
    goto __pyx_L0;
    /* "wirescan/a.pyx":3
 *     if x:             # <<<<<<<<<<<<<<
*/
  }
  __pyx_L3:;
}
int other;
""".splitlines()

SOURCE = '''
@property
def f(a,
      b):     # a comment
    """A docstring."""
    return a

cdef int g(int a) noexcept nogil

cdef int h(int a) noexcept nogil:
    return a

cdef extern from *:
    """
    static int i(void) {
        return 1;
    }
    """
    int i()
'''.splitlines()


def test_lines_of_c_code():
    places = report.map_lines_to_statements(C_TEXT)
    assert {number: line for number, (_, line) in places.items()} == {7: 3, 11: 4, 12: 4, 16: 3}
    assert {name for name, _ in places.values()} == {"wirescan/a.pyx"}


def test_function_headers_are_found():
    assert list(report.find_function_headers(SOURCE)) == [(2, 4), (10, 10)]
    assert report.find_body_stop(SOURCE, 2, 4) == 8
    assert report.find_body_stop(SOURCE, 10, 10) == 13


def test_headers_are_not_counted_and_functions_without_code_are():
    assert report.remove_headers({3: 5, 6: 0}, SOURCE) == {6: 0, 10: 0}
    assert report.remove_headers({2: 5, 4: 1, 6: 7, 11: 3}, SOURCE) == {6: 7, 11: 3}


def test_embedded_c_is_found():
    block = ["static int i(void) {", "return 1;", "}"]
    assert list(report.find_embedded_c(SOURCE)) == [(15, block)]
    c_text = ["#include <stdio.h>", "    static int i(void) {", "        return 1;", "    }"]
    assert report.locate_embedded_c(c_text, "a.pyx", SOURCE) == {
        2: ("a.pyx", 15),
        3: ("a.pyx", 16),
        4: ("a.pyx", 17),
    }


def test_exclusions_apply_to_unreached_lines_only(tmp_path, monkeypatch):
    (tmp_path / "a.h").write_text("x = 1;\nx = 2;\ny = 3;\n")
    monkeypatch.setattr(report, "EXCLUSIONS", [Exclusion("a.h", "x =", "a reason")])
    file = report.FileCoverage("a.h", {1: 0, 2: 1, 3: 0})
    report.apply_exclusions([file], tmp_path)
    assert file.excluded == {1: "a reason"}
    assert file.counts == {2: 1, 3: 0}


def test_an_exclusion_may_name_several_lines():
    text = ["f {", "  x;", "}", "  x;", "}", "f {", "}"]
    lines = report.find_excluded_lines(Exclusion("a.h", r"^f", "a reason", r"^}$"), text)
    assert lines == {1, 2, 3, 6, 7}
    assert report.find_excluded_lines(Exclusion("a.h", r"^f", "a reason"), text) == {1, 6}


def test_verdicts_follow_the_limits():
    kernel = report.FileCoverage("a.pyx", dict.fromkeys(range(99), 1) | {99: 0})
    python = report.FileCoverage("a.py", {1: 1})
    assert [is_kept for is_kept, _ in report.list_verdicts([kernel], [python])] == [True, True]
    kernel.counts[0] = 0
    python.counts[1] = 0
    assert [is_kept for is_kept, _ in report.list_verdicts([kernel], [python])] == [False, False]
