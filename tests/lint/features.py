"""The list of docs/features.yaml in the pages that show it: a table of README.md, a sentence of docs/COMPARISON.md.

Each page has the text between two marks. references.py writes and checks them with the generated pages.
"""

import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import yaml

ROOT = Path(__file__).parents[2]
LIST = ROOT / "docs" / "features.yaml"
README, COMPARISON = ROOT / "README.md", ROOT / "docs" / "COMPARISON.md"
LINE = 140
"""Characters of a line of prose."""
BEGIN, END = "<!-- from docs/features.yaml -->", "<!-- end -->"


class Area(NamedTuple):
    """A row of the list. `missing`: feature -> how unsupported_keys.py calls it."""

    works: str
    missing: Mapping[str, tuple[str, ...]]


def load_areas() -> list[Area]:
    """Return the list in its order."""
    rows = yaml.safe_load(LIST.read_text(encoding="utf-8"))
    return [
        Area(row["works"], {name: tuple(entries) for name, entries in row.get("missing", {}).items()}) for row in rows
    ]


def feature_pages() -> dict[Path, str]:
    """Return the text of the pages with the list as it is now. Raises ValueError for a page without its marks."""
    areas = load_areas()
    return {
        README: _replace_marked(README, _render_table(areas)),
        COMPARISON: _replace_marked(COMPARISON, _render_sentence(areas)),
    }


def _render_table(areas: list[Area]) -> str:
    rows = [f"| {area.works} | {', '.join(area.missing)} |".replace("|  |", "| |") for area in areas]
    return "\n".join(["| works | not yet, answers 404 or a warning today |", "|---|---|", *rows])


def _render_sentence(areas: list[Area]) -> str:
    *names, last = [name for area in areas for name in area.missing]
    sentence = f"- you need something that is not built yet: {', '.join(names)} or {last};"
    return textwrap.fill(sentence, LINE, subsequent_indent="  ", break_on_hyphens=False)


def _replace_marked(page: Path, text: str) -> str:
    marked = re.compile(f"{re.escape(BEGIN)}\n.*?\n{re.escape(END)}", re.DOTALL)
    page_text, count = marked.subn(lambda _: f"{BEGIN}\n{text}\n{END}", page.read_text(encoding="utf-8"))
    if count != 1:
        raise ValueError(f"{page.name} needs one part between {BEGIN} and {END}")
    return page_text
