"""docs/WALK.md names places that exist, each once, in the order of the table."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
STOP = re.compile(r"^\| (\d+) \| `([^`]+)::([^`]+)` \|", re.MULTILINE)


def stops() -> list[tuple[int, str, str]]:
    text = (ROOT / "docs" / "WALK.md").read_text()
    return [(int(number), path, symbol) for number, path, symbol in STOP.findall(text)]


def defined_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}


def test_the_walk_has_its_stops_in_order() -> None:
    numbers = [number for number, _, _ in stops()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 10


def test_every_stop_is_a_symbol_of_its_file() -> None:
    missing = [f"{path}::{symbol}" for _, path, symbol in stops() if symbol not in defined_in(ROOT / path)]
    assert missing == []


def test_no_place_is_visited_twice() -> None:
    places = [(path, symbol) for _, path, symbol in stops()]
    assert len(places) == len(set(places))
