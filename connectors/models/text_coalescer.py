"""Streamed text in pieces worth showing.

Chat completions come a token at a time, and every piece shown costs a frame for each listener. So pieces are joined
until they have MIN_CHARACTERS or end a line (runtime parity 2.4). The first piece goes out as it comes: how soon an
answer begins is what people notice.

Before: openai_reply. After: nothing; it is pure.
"""

MIN_CHARACTERS = 64


class TextCoalescer:
    """Pieces in, fewer pieces out; joined they are the same text."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._size = 0
        self._has_begun = False

    def add(self, text: str) -> str:
        """What is to be shown now; empty while more is awaited."""
        self._pieces.append(text)
        self._size += len(text)
        if self._has_begun and self._size < MIN_CHARACTERS and "\n" not in text:
            return ""
        return self.flush()

    def flush(self) -> str:
        """All that is held: something else follows, or nothing."""
        text = "".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        self._has_begun = self._has_begun or bool(text)
        return text
