"""Secrets are masked before anything is appended: what is in the log stays there.

    known       wherever a text comes from                   [redacted:NAME]
    lookalikes  in results of tools, which bring in what nobody here knows (connectors/crypto/secret_patterns.py)

The model is shown a result as the log has it, so that every fold of it, after a crash or in a later run of the session,
is the conversation the model has had.

The known values are those of the environment that settings and files name as secrets (provider keys, tokens,
passwords), at least 8 characters long, longest first, so that a secret that contains another is masked whole. Tool
results, answers, their previews, reasoning and error texts pass through here. Tool inputs do not: the call itself needs
them as they are (projections/frames/masking.py).
"""

import re
from collections.abc import Iterable, Mapping

from loomlog.connectors.crypto.secret_patterns import redact_secrets

CREDENTIAL_CHARACTERS_MIN = 4
"""Shorter ones are not masked: they would also hide innocent text (runtime parity 5.9)."""
CREDENTIAL_MASK = "[redacted:credential]"


class Redaction:
    """Masks secrets by value as `[redacted:NAME]`. `secrets` maps names to values; empty = nothing is masked."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._names = {value: name for name, value in sorted(secrets.items(), reverse=True)}
        values = sorted(self._names, key=len, reverse=True)
        self._pattern = re.compile("|".join(re.escape(value) for value in values)) if values else None
        self._values = values
        self._first_characters = frozenset(value[0] for value in values)
        self._longest_length = len(values[0]) if values else 0

    def mask_text(self, text: str) -> str:
        """The text without secrets; the same object when there are none."""
        if self._pattern is None or not text:
            return text
        return self._pattern.sub(lambda found: f"[redacted:{self._names[found.group()]}]", text)

    def mask_prefix(self, text: str) -> tuple[str, str]:
        """Of a text that goes on: what of it is certain, without secrets, and the rest, which may begin a secret.

        The certain parts of a text, each begun with the rest of the one before, are together a beginning of `text` of
        the whole.
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
        """What a tool gave, without known secrets and without what looks like one."""
        return redact_secrets(self.mask_text(text))


NO_REDACTION = Redaction({})
"""Masks nothing."""


def mask_credentials(credentials: Iterable[str], text: str) -> str:
    """The text without the credentials of its run, the longest first."""
    for value in sorted(credentials, key=len, reverse=True):
        if len(value) >= CREDENTIAL_CHARACTERS_MIN and value in text:
            text = text.replace(value, CREDENTIAL_MASK)
    return text
