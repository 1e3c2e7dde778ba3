"""The files we write, told apart by their first line, so that a reader who is given another one can say what it is.

Before: bundle.py, state_reader.py. After: a person who reads the sentence.
"""

from collections.abc import Mapping

RUN_BUNDLE = "loomlog.run-bundle"
STATE = "loomlog.state"
TAKEN_BY: Mapping[str, str] = {
    RUN_BUNDLE: "a run, which `loomlog replay` and `loomlog runs import` take",
    STATE: "a state, which `loomlog backup restore` takes",
}
HEAD_BYTES = 200
"""Of a first line; both say their format at its beginning."""


def wrong_format_hint(first_line: bytes, expected: str) -> str:
    """What a file of ours is that is not of the expected format; empty when it is none of ours."""
    head = first_line[:HEAD_BYTES]
    return next((text for name, text in TAKEN_BY.items() if name != expected and f'"{name}"'.encode() in head), "")
