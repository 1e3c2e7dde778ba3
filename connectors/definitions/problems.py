"""Refusal of a definition, with the reason that a caller matches on.

After: every module of this package raises it; the transports answer with its reason and its message.
"""

import json
from typing import Literal

SHOWN_LENGTH = 60
"""Characters of a text that a message repeats."""
Reason = Literal[
    "missing_field", "unknown_field", "bad_name", "too_large", "too_many", "invalid_definition", "grants_exceeded"
]


class DefinitionProblem(Exception):
    """A definition cannot be used. `reason` is a word for programs, `message` a sentence for people."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason: Reason = reason
        self.message = message


def quote(text: str) -> str:
    """Return a text of the author as a message may repeat it: in quotes, escaped and short."""
    return json.dumps(text if len(text) <= SHOWN_LENGTH else text[: SHOWN_LENGTH - 1] + "…", ensure_ascii=False)
