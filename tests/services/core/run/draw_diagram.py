"""Draws the state diagram of a run into docs/ARCHITECTURE.md: `python -m tests.services.core.run.draw_diagram`."""

import sys
from pathlib import Path

import pytest

from tests.services.core.run import diagram


def main() -> int:
    """Run the tests of the run core, then write the transitions they took. Exit code 1 when a test failed."""
    diagram.is_collecting = True
    if pytest.main(["-q", "-p", "no:xdist", str(Path(__file__).parent)]) != 0:
        return 1
    text = diagram.ARCHITECTURE.read_text()
    start = text.index(diagram.BEGIN)
    end = text.index(diagram.END, start + len(diagram.BEGIN)) + len(diagram.END)
    diagram.ARCHITECTURE.write_text(text[:start] + diagram.drawing(diagram.taken) + text[end:])
    return 0


if __name__ == "__main__":
    sys.exit(main())
