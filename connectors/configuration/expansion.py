"""Expansion of `${NAME}` inside the values of a configuration file.

Only names that may appear in a file are expanded: those with our prefixes and a short list of third-party ones. Secrets
of the infrastructure are refused, so a file cannot carry the database password into a prompt or a header. Any other
`${...}` stays as written: prompts contain shell snippets, and headers contain `${run.*}` templates that are filled
later. Expansion happens on parsed scalars, never on the text of the file, so a value cannot add keys.

Before: environment.py defines which names are secret. After: tree.py calls this for every scalar.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from loomlog.connectors.configuration.environment import PREFIXES, secret_names

THIRD_PARTY_NAMES = frozenset(
    {
        "BRAVE_API_KEY",
        "EXA_API_KEY",
        "GITHUB_TOKEN",
        "REDIS_URL",
        "SANDBOX_AUTH_TOKEN",
        "SEARXNG_BASE_URL",
        "SERPER_API_KEY",
        "SLACK_BOT_TOKEN",
        "TAVILY_API_KEY",
    }
)
MAX_EXPANDED_LENGTH = 65_536
"""Characters of one expanded value; a longer environment value is a mistake."""
_REFERENCE = re.compile(r"\$\{([A-Z_][A-Z0-9_]*)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpandedText:
    """Text after expansion, the names it used, and its errors and warnings."""

    text: str
    names: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def expand(text: str, environ: Mapping[str, str]) -> ExpandedText:
    """Return `text` with the references it may make replaced by their values."""
    if "${" not in text:
        return ExpandedText(text=text)
    names: list[str] = []
    errors: list[str] = []
    warnings: list[str] = []
    secrets = secret_names()

    def value_of(match: re.Match[str]) -> str:
        name = match[1]
        if name in secrets:
            names.append(name)
            errors.append(f"${{{name}}} is a secret of the installation and is not expanded in a file")
            return ""
        if not name.startswith(PREFIXES) and name not in THIRD_PARTY_NAMES:
            warnings.append(f"${{{name}}} is left as it is written; only LOOMLOG_* and LOOMCYCLE_* names are expanded")
            return match[0]
        names.append(name)
        if name not in environ:
            warnings.append(f"${{{name}}} is not set in the environment; it becomes empty")
        return environ.get(name, "")

    expanded = _REFERENCE.sub(value_of, text)
    if len(expanded) > max(len(text), MAX_EXPANDED_LENGTH):
        errors.append(
            f"the value has {len(expanded)} characters after expansion, at most {MAX_EXPANDED_LENGTH} are allowed"
        )
    return ExpandedText(text=expanded, names=tuple(names), errors=tuple(errors), warnings=tuple(warnings))
