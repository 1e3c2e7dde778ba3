"""A position in the log: names one write, so that a later read can wait for it.

The text form is `<topic>/<partition>:<offset>` with the full name of the topic: `loom.run.events/3:1042`. It is the
only form: numbers have no leading zeros, so equal positions are equal texts.

Before: every write answers with one. After: services/application/queries/read_your_writes.py waits for it.
"""

import re

from loomlog.schemas.records import Value

FORM = "<topic>/<partition>:<offset>, for example loom.run.events/3:1042"
PATTERN = re.compile(r"([A-Za-z0-9._-]{1,249})/(0|[1-9][0-9]{0,8}):(0|[1-9][0-9]{0,17})\Z")
"""A topic's name has at most 249 characters, as in Kafka; numbers are bounded so that every store can hold them."""
SHOWN_CHARACTERS = 80
"""Characters of a text that is no position, as an error repeats them."""


class Position(Value, frozen=True, kw_only=True):
    """A record's position: the full name of its topic, its partition and its offset, both from 0."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}:{self.offset}"

    @classmethod
    def parse(cls, text: str) -> "Position":
        """Return the position of a text. Raises ValueError that names the text and the expected form."""
        match = PATTERN.match(text)
        if match is None:
            raise ValueError(f"{text[:SHOWN_CHARACTERS]!r} is not a position: expected {FORM}")
        return cls(topic=match[1], partition=int(match[2]), offset=int(match[3]))
