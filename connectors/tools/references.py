"""Substitute a run's credentials into the headers of a request: `${run.credentials.git}` in a configured value.

    ${run.user_bearer}  ${run.credentials.<name>}       secrets that came with the run's request
    ${run.root_run_id}  ${run.tenant_id}                identity of the run
    $cred:<name>                                        a stored credential of its agent, user or tenant
    $ghapp:<name>                                       a token of the GitHub App whose key is stored under the name

those with braces each with an optional fallback: `${run.user_bearer:-none}`. A header whose reference cannot be
resolved is left out, and so is one that would contain a line end: a partial header is worse than none. Other `${...}`
stay unchanged; configuration files were expanded when they were read.

Only for headers that an operator or a tenant configured, of servers that are configured too. Never for text from a
model: it could send any secret of its run to any host, so the HTTP tool does not support references.

Before: a configured server. After: the request.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from loomlog.connectors.errors import ConnectorError

_STORED = r"\$(?P<kind>cred|ghapp):(?P<name>[A-Za-z0-9_-]{1,128})"
STORED = re.compile(_STORED)
"""A reference to a stored credential."""
REFERENCE = re.compile(r"\$\{run\.(?P<value>[A-Za-z0-9_.-]{1,80})(?::-(?P<fallback>[^}]*))?\}|" + _STORED)
USER_BEARER_NAME = "run.user_bearer"
"""Name of the bearer among the credentials; no caller can choose it, because it contains a dot."""
CREDENTIALS_PREFIX = "credentials."
CREDENTIAL_CHARACTERS_MIN = 4
"""Characters of the shortest masked credential; shorter ones would hide innocent text too (runtime parity 5.9)."""
CREDENTIAL_MASK = "[redacted:credential]"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunValues:
    """Values of the references in one run."""

    root_run_id: str
    tenant: str
    credentials: Mapping[str, str] = field(repr=False)
    """By name; those that are stored by their references, which no caller can choose as a name."""
    user: str = ""
    """User whose run it is; empty without one."""


def substitute_references(headers: Mapping[str, str], values: RunValues) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the headers to send, and the names of those left out, for a log line. Values are never logged."""
    sent: dict[str, str] = {}
    left_out: list[str] = []
    for name, text in headers.items():
        value = _substitute_text(text, values)
        if value is None:
            left_out.append(name)
        else:
            sent[name] = value
    return sent, tuple(left_out)


def stored_references(headers: Mapping[str, str]) -> frozenset[str]:
    """Return the references of headers to stored credentials."""
    matches = (match for text in headers.values() for match in REFERENCE.finditer(text))
    return frozenset(match[0] for match in matches if match["kind"])


def _substitute_text(text: str, values: RunValues) -> str | None:
    parts: list[str] = []
    end = 0
    # One pass: the content of a secret is never searched for references.
    for match in REFERENCE.finditer(text):
        if match["kind"]:
            value = values.credentials.get(match[0])
        else:
            value = _lookup_value(match["value"], values) or match["fallback"]
        if value is None:
            return None
        parts += (text[end : match.start()], value)
        end = match.end()
    whole = "".join((*parts, text[end:]))
    return whole if all(character == "\t" or character.isprintable() for character in whole) else None


def _lookup_value(name: str, values: RunValues) -> str:
    """Return the value of a reference; empty when there is none."""
    if name == "root_run_id":
        return values.root_run_id
    if name == "tenant_id":
        return values.tenant
    if name == "user_bearer":
        return values.credentials.get(USER_BEARER_NAME, "")
    return (
        values.credentials.get(name.removeprefix(CREDENTIALS_PREFIX), "") if name.startswith(CREDENTIALS_PREFIX) else ""
    )


def mask_credentials(credentials: Iterable[str], text: str) -> str:
    """Return the text with the values of credentials masked, longest first."""
    for value in sorted(credentials, key=len, reverse=True):
        if len(value) >= CREDENTIAL_CHARACTERS_MIN and value in text:
            text = text.replace(value, CREDENTIAL_MASK)
    return text


@contextmanager
def masked_errors(credentials: Mapping[str, str]) -> Iterator[None]:
    """Mask the values of credentials in the text of what is raised for another system."""
    try:
        yield
    except ConnectorError as error:
        error.args = (mask_credentials(credentials.values(), str(error)),)
        raise
