"""Masking of secrets before anything is appended: what is in the log stays there.

    known       in every text, wherever it comes from        [redacted:NAME]
    lookalikes  in results of tools, which may contain unknown secrets (connectors/crypto/secret_patterns.py)

The model is shown a result as it is in the log, so that every fold of it, after a crash or in a later run of the
session, is the conversation that the model has had.

The known values are those of the environment that settings and files name as secrets (provider keys, tokens,
passwords), at least 8 characters long, longest first, so that a secret that contains another is masked whole. Tool
results, answers, their previews, reasoning and error texts pass through here. Tool inputs do not: the call itself needs
them as they are (projections/frames/masking.py).
"""

import re
from collections.abc import Mapping

from loomlog.connectors.crypto.secret_patterns import redact_secrets


class Redaction:
    """Masks secrets by value as `[redacted:NAME]`. `secrets` maps names to values; empty: nothing is masked."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._names = {value: name for name, value in sorted(secrets.items(), reverse=True)}
        values = sorted(self._names, key=len, reverse=True)
        self._pattern = re.compile("|".join(re.escape(value) for value in values)) if values else None
        self._values = values
        self._first_characters = frozenset(value[0] for value in values)
        self._longest_length = len(values[0]) if values else 0

    def mask_text(self, text: str) -> str:
        """Return the text without secrets; the same object when there are none."""
        if self._pattern is None or not text:
            return text
        return self._pattern.sub(lambda match: f"[redacted:{self._names[match.group()]}]", text)

    def mask_prefix(self, text: str) -> tuple[str, str]:
        """Split a streamed text: its final part with secrets masked, and the rest, which may be the start of a secret.

        When each piece is preceded by the rest of the one before, the final parts together are a prefix of `mask_text`
        of the whole text.
        """
        if self._pattern is None:
            return text, ""
        end = len(text)
        open_at = [
            at
            for at in range(max(0, end - self._longest_length + 1), end)
            if text[at] in self._first_characters
            and any(value.startswith(text[at:]) and len(value) > end - at for value in self._values)
        ]
        if not open_at:
            return self.mask_text(text), ""
        done = 0
        for match in self._pattern.finditer(text):
            if any(done <= at <= match.start() for at in open_at):
                break
            done = match.end()
        held = next((at for at in open_at if at >= done), end)
        return self.mask_text(text[:held]), text[held:]

    def mask_result(self, text: str) -> str:
        """Return a tool's output without known secrets and without what looks like one."""
        return redact_secrets(self.mask_text(text))


NO_REDACTION = Redaction({})
"""The redaction that masks nothing."""
