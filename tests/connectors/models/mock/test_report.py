from dataclasses import replace

from loomlog.connectors.models.mock.findings import ReviewFinding
from loomlog.connectors.models.mock.report import MAX_LISTED, Review, confirm_findings, render_report, summary

NOTHING = Review(findings=(), source_count=3, files_read={}, search_count=10, notes=())
EVAL = ReviewFinding(kind="eval", path="a.py", line=7, text="    eval(`x`)  ")
SECRET = ReviewFinding(kind="secret", path="b.py", line=1, text="password = 'hunter2hunter2'")


def test_a_review_that_found_nothing_says_what_it_searched() -> None:
    report = render_report(NOTHING)
    assert "No findings in 3 source files after 10 searches." in report
    assert "- Possible secrets in the source: 0 found" in report
    assert "What was not seen" not in report


def test_a_review_that_could_not_see_everything_does_not_call_it_clean() -> None:
    report = render_report(replace(NOTHING, notes=("Grep failed: no volume.",)))
    assert "Not everything could be seen." in report
    assert "- Grep failed: no volume." in report


def test_findings_are_listed_by_kind_with_place_line_and_reason() -> None:
    review = replace(NOTHING, findings=(EVAL, SECRET), files_read={"a.py": "def f():\n    eval(x)\n"})
    report = render_report(review)
    assert (
        "## Text run as code (1)\n\nControl of the text is control of the process.\n\n- `a.py:7` `eval('x')`" in report
    )
    assert "- `b.py:1` `password = 'hu...'`" in report
    assert "hunter2" not in report
    assert "| a.py | 2 | 1 | f (2 lines) |" in report
    assert summary(review).startswith("2 findings in 2 files: 1 possible secrets in the source, 1 text run as code.")


def test_long_lists_and_lines_are_cut_and_counted() -> None:
    many = tuple(
        ReviewFinding(kind="todo", path="a.py", line=n, text="# TODO " + "x" * 500) for n in range(MAX_LISTED + 7)
    )
    report = render_report(replace(NOTHING, findings=many, notes=tuple(f"note {n}" for n in range(30))))
    assert "- and 7 more" in report
    assert "- and 10 more" in report
    assert max(map(len, report.split("\n"))) < 200


def test_a_look_into_the_file_excuses_docstrings_and_handlers_that_raise() -> None:
    source = '"""Doc.\neval(x)\nTODO\n"""\ntry:\n    f()\nexcept Exception:\n    raise\neval(y)\n'
    found = [
        ReviewFinding(kind=kind, path="a.py", line=line, text="")
        for kind, line in (("eval", 2), ("todo", 3), ("except", 7), ("eval", 9))
    ]
    elsewhere = [replace(finding, path="b.py") for finding in found]
    assert confirm_findings([*found, *elsewhere], {"a.py": source}) == [found[1], found[3], *elsewhere]
