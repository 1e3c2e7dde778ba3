"""Our file formats, recognised by their first line, so that a reader of one can name another.

Before: bundle.py, state_reader.py. After: the message for the user.
"""

from collections.abc import Mapping

RUN_BUNDLE = "loomlog.run-bundle"
STATE = "loomlog.state"
TAKEN_BY: Mapping[str, str] = {
    RUN_BUNDLE: "a run, which `loomlog replay` and `loomlog runs import` take",
    STATE: "a state, which `loomlog backup restore` takes",
}
HEAD_BYTES = 200
"""Bytes of a first line that are read; both formats are named at its beginning."""


def wrong_format_hint(first_line: bytes, expected: str) -> str:
    """Return what a file of ours is if it is not of the expected format; empty if it is not ours."""
    head = first_line[:HEAD_BYTES]
    return next((text for name, text in TAKEN_BY.items() if name != expected and f'"{name}"'.encode() in head), "")
