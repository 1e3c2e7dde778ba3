"""Streamed text joined into pieces worth showing.

Chat completions arrive one token at a time, and every piece shown costs a frame for each listener. So pieces are joined
until they have MIN_CHARACTERS or end a line (runtime parity 2.4). The first piece is passed on at once: users notice
how soon an answer begins.

Before: openai_reply. After: nothing; it is pure.
"""

MIN_CHARACTERS = 64


class TextCoalescer:
    """Joins pieces into fewer pieces; in total they are the same text."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._size = 0
        self._has_begun = False

    def add(self, text: str) -> str:
        """Return the text to show now; empty while more is awaited."""
        self._pieces.append(text)
        self._size += len(text)
        if self._has_begun and self._size < MIN_CHARACTERS and "\n" not in text:
            return ""
        return self.flush()

    def flush(self) -> str:
        """Return all held text: something else follows, or nothing."""
        text = "".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        self._has_begun = self._has_begun or bool(text)
        return text
