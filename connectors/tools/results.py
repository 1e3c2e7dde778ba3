"""Error results of tools, and conversion of external bytes to text that every store accepts.

A tool never fails a run. Every error becomes a result with is_error, which the model reads and reacts to, so the
message contains what was tried, with which value, what was expected and what to do. Inside a tool that is one
exception, ToolCallRefused; the tool's `call` turns it into the result in one place.

Text from files, programs and servers is bytes. `decode_text` decodes it without ever failing, and without NUL, which
Postgres cannot store in text. `escape_name` is for names in line-based answers: a file name that contains a newline
would otherwise look like two lines of the answer.

Before: every tool. After: the runtime appends the result as ToolReturned.
"""

import codecs
import unicodedata

from loomlog.connectors.protocols import ToolResult


class ToolCallRefused(Exception):
    """A call that cannot be executed; the message is for the model."""


def error_result(refusal: ToolCallRefused) -> ToolResult:
    return ToolResult(text=str(refusal), is_error=True)


def decode_text(data: bytes, *, complete: bool = True) -> str:
    """Return the bytes as UTF-8 text; invalid bytes and NUL become U+FFFD.

    `complete=False`: the bytes were cut, so an incomplete character at the end is left out.
    """
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(data, final=complete)
    return text.replace("\0", "�")


def escape_name(name: str) -> str:
    """Return a file name on one line: undecodable bytes become U+FFFD, control characters and line
    breaks hex escapes.
    """
    text = to_valid_text(name)
    if text.isprintable():
        return text
    return "".join(f"\\x{ord(c):02x}" if unicodedata.category(c) in ("Cc", "Zl", "Zp") else c for c in text)


def to_valid_text(name: str) -> str:
    """Return a name from the operating system as encodable text."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def encode_text(text: str, label: str) -> bytes:
    """Return the text as UTF-8. Raises ToolCallRefused for lone surrogates: no characters, and no
    store accepts them.
    """
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ToolCallRefused(
            f"{label} holds a lone surrogate at position {error.start}: valid Unicode is expected."
        ) from error
