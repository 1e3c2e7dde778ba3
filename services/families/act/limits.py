"""Bounds of acts."""

NAME_CHARACTERS_MAX = 256
"""Characters of the target, the caller and the other names of an act; what makes acts cuts longer ones."""
TEXT_BYTES_MAX = 64 * 1024
"""Bytes of a JSON text of an act, encrypted or not: a token is a third longer than its text."""
UNKNOWN_MS = 15 * 60_000
"""Time after which an act without an end is one whose outcome is unknown: longer than any request is answered."""
COUNT_MAX = 2**31 - 1
"""Refusals that one event stands for: an int of Avro."""
