"""Substitute a run's credentials into the headers of a request: `${run.credentials.git}` in a configured value.

    ${run.user_bearer}  ${run.credentials.<name>}       secrets that came with the run's request
    ${run.root_run_id}  ${run.tenant_id}                identity of the run
    $cred:<name>                                        a stored credential of its agent, user or tenant

those with braces each with an optional fallback: `${run.user_bearer:-none}`. A header whose reference cannot be
resolved is left out, and so is one that would contain a line end: a partial header is worse than none. Other `${...}`
stay unchanged; configuration files were expanded when they were read.

Only for headers that an operator or a tenant configured, of servers that are configured too. Never for text from a
model: it could send any secret of its run to any host, so the HTTP tool does not support references.

Before: a configured server. After: the request.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

REFERENCE = re.compile(r"\$\{run\.([A-Za-z0-9_.-]{1,80})(?::-([^}]*))?\}|\$cred:([A-Za-z0-9_-]{1,128})")
USER_BEARER_NAME = "run.user_bearer"
"""Name of the bearer among the credentials; no caller can choose it, because it contains a dot."""
CREDENTIALS_PREFIX = "credentials."
STORED_PREFIX = "cred:"
"""Prefix of the names of stored credentials among those of a run: no caller can choose it, because of the colon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunValues:
    """Values of the references in one run."""

    root_run_id: str
    tenant: str
    credentials: Mapping[str, str] = field(repr=False)
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


def stored_names(headers: Mapping[str, str]) -> frozenset[str]:
    """Return the names of the stored credentials that headers refer to."""
    return frozenset(match[3] for text in headers.values() for match in REFERENCE.finditer(text) if match[3])


def _substitute_text(text: str, values: RunValues) -> str | None:
    parts: list[str] = []
    end = 0
    # One pass: the content of a secret is never searched for references.
    for match in REFERENCE.finditer(text):
        if match[3]:
            value = values.credentials.get(STORED_PREFIX + match[3])
        else:
            value = _lookup_value(match[1], values) or match[2]
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
