"""What docs/COMPARISON.md calls planned is what the table of the README calls planned."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def planned() -> set[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    table = text[text.index("| works | planned") :].partition("\n\n")[0]
    cells = [line.strip("|").split("|")[1] for line in table.splitlines()[2:]]
    return {name.strip() for cell in cells for name in cell.split(",") if name.strip()}


def test_the_comparison_calls_planned_what_the_readme_does() -> None:
    text = (ROOT / "docs" / "COMPARISON.md").read_text(encoding="utf-8")
    (sentence,) = re.findall(r"- you need (.+) today: they are planned \(README\)", text)
    named = set(re.split(r", | or ", sentence))
    assert named <= planned(), named - planned()


def test_nothing_else_of_the_comparison_is_called_planned_by_name() -> None:
    text = (ROOT / "docs" / "COMPARISON.md").read_text(encoding="utf-8")
    assert re.findall(r"planned here:", text) == []
