"""MCP servers of Claude Code: mcp.json and ../.mcp.json become entries of `mcp_servers`.

Values that look like secrets are not written into the configuration: a reference to an environment variable takes their
place, and a note names the variable. References to variables that the configuration does not expand are renamed.

Before: command.py. After: entries.py.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from loomlog.connectors.configuration.environment import PREFIXES
from loomlog.connectors.configuration.expansion import THIRD_PARTY_NAMES
from loomlog.connectors.configuration.layers import MAX_FILE_BYTES
from loomlog.connectors.configuration.markdown_files import read_text
from loomlog.connectors.configuration.storable_text import describe_text_problem
from loomlog.connectors.crypto.secret_patterns import redact_secrets
from loomlog.services.cli.claude_code.entries import Entry, Note, Skipped, require_no_secret_reference

BLOCK = "mcp_servers"
FILES = ("mcp.json", "../.mcp.json")
SERVER_KEYS = ("mcpServers", "registries")
VARIABLE_PREFIX = "LOOMLOG_MCP_"
TRANSPORTS: Mapping[str, str] = {
    "http": "http",
    "stdio": "stdio",
    "streamable-http": "streamable-http",
    "streamable_http": "streamable-http",
    "streamableHttp": "streamable-http",
}
MAPPED_KEYS = frozenset({"type", "transport", "command", "args", "env", "url", "headers"})
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_SECRET_NAME = re.compile(r"(?i)key|token|secret|passw|pwd|auth|bearer|cookie|credential|session|signature|dsn")
_FLAG = re.compile(r"--?([A-Za-z][A-Za-z0-9_.-]*)(?:=(.*))?", re.DOTALL)
_PASSWORD_IN_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#\s@]*@", re.IGNORECASE)
_QUERY_VALUE = re.compile(r"[?&;]([^=&#\s]+)=([^&#\s]+)")
_RANDOM = re.compile(r"(?=[^0-9]*[0-9])(?=[^A-Za-z]*[A-Za-z])[A-Za-z0-9_+=-]{20,}")
"""A word such as a key or a UUID: letters and digits, and longer than names of programs and packages are."""
HARMLESS_LENGTH = 8
"""Characters of a value of a query below which it is no secret, unless its name says so: a page, a version."""


def read_servers(folder: Path) -> tuple[list[Entry], list[Skipped]]:
    """Return the servers of both files, the first of a name, and what is no server."""
    entries: dict[str, Entry] = {}
    skipped: list[Skipped] = []
    for source in FILES:
        try:
            servers = _read_file(folder / source)
        except ValueError as problem:
            skipped.append(Skipped(source=source, reason=str(problem)))
            continue
        for name, server in servers.items():
            try:
                if name in entries:
                    raise ValueError(f"{entries[name].source} has a server of this name too")
                entries[name] = _read_server(name, server, source)
            except ValueError as problem:
                skipped.append(Skipped(source=f"{source}: {name}", reason=str(problem)))
    return list(entries.values()), skipped


def _read_file(path: Path) -> Mapping[str, Any]:
    if not path.exists():
        return {}
    try:
        document = orjson.loads(read_text(path, MAX_FILE_BYTES))
    except orjson.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error}") from error
    except ValueError as error:
        raise ValueError(str(error)) from error
    if not isinstance(document, dict):
        raise ValueError('expected an object with "mcpServers"')
    servers: dict[str, Any] = {}
    for key in SERVER_KEYS:
        if not isinstance(block := document.get(key) or {}, dict):
            raise ValueError(f'"{key}" must be an object with a server for each name')
        servers = {**block, **servers}
    return servers


def _read_server(name: str, server: Any, source: str) -> Entry:
    if not _NAME.fullmatch(name):
        raise ValueError("the name must have 1 to 64 letters, digits, _ and -")
    if not isinstance(server, dict):
        raise ValueError("expected an object with a command or a url")
    kind = server.get("type") or server.get("transport") or ("stdio" if "command" in server else "http")
    transport = TRANSPORTS.get(kind) if isinstance(kind, str) else None
    if transport is None:
        raise ValueError(f"the transport {kind!r} is not supported; expected stdio, http or streamable-http")
    needed = "command" if transport == "stdio" else "url"
    if not server.get(needed):
        raise ValueError(f"a server over {transport} needs a {needed}")
    texts = _Texts(name)
    value = {
        "transport": transport,
        **{key: texts.convert(key, server[key]) for key in ("command", "url") if server.get(key)},
        **({"args": texts.convert_list("args", server["args"])} if server.get("args") else {}),
        **{key: texts.convert_map(key, server[key]) for key in ("env", "headers") if server.get(key)},
    }
    notes = [*texts.notes, *(Note(field=key, hint="no equivalent") for key in server.keys() - MAPPED_KEYS)]
    return Entry(block=BLOCK, name=name, source=source, value=value, notes=tuple(notes))


class _Texts:
    """Texts of a server as the configuration may have them; `notes` collects what was replaced."""

    def __init__(self, server: str) -> None:
        self._server = server
        self.notes: list[Note] = []

    def convert_map(self, key: str, values: Any) -> dict[str, str]:
        if not isinstance(values, dict):
            raise ValueError(f'"{key}" must be an object of texts')
        return {name: self.convert(f"{key}.{name}", value) for name, value in values.items()}

    def convert_list(self, key: str, values: Any) -> tuple[str, ...]:
        if not isinstance(values, list):
            raise ValueError(f'"{key}" must be a list of texts')
        named = [_name_before(values, number) for number in range(len(values))]
        return tuple(
            self.convert(f"{key}.{number}", value, is_named=named[number]) for number, value in enumerate(values)
        )

    def convert(self, key: str, value: Any, *, is_named: bool = False) -> str:
        """Return a text as it is written. `is_named`: a name before it says that it is a secret."""
        if isinstance(value, dict | list) or value is None:
            raise ValueError(f'"{key}" must be a text')
        text = str(value).lower() if isinstance(value, bool) else str(value)
        block, _, name = key.partition(".")
        if problem := describe_text_problem(text):
            raise ValueError(f'"{key}" cannot be used: {problem}')
        is_named = is_named or (block in ("env", "headers") and bool(_SECRET_NAME.search(name)))
        rest = _REFERENCE.sub("", text)
        # "Bearer ${X}" has nothing but the reference; of any other value with a secret nothing is written.
        if rest and ((is_named and not _REFERENCE.search(text)) or may_hold_secret(name, rest)):
            variable = f"{VARIABLE_PREFIX}{_variable(self._server)}_{_variable(name or block)}"
            self.notes.append(Note(field=key, hint=f"its value is not written; set {variable} in the environment"))
            return f"${{{variable}}}"
        converted = _REFERENCE.sub(lambda match: self._rename(key, match), text)
        require_no_secret_reference(converted)
        return converted

    def _rename(self, key: str, match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        is_expanded = name.isupper() and (name.startswith(PREFIXES) or name in THIRD_PARTY_NAMES)
        variable = name if is_expanded else VARIABLE_PREFIX + _variable(name)
        if default is not None or not is_expanded:
            hidden = bool(_SECRET_NAME.search(key) or _SECRET_NAME.search(name)) or may_hold_secret(name, default or "")
            suffix = "" if not default else "; its default is not written" if hidden else f"; its default is {default}"
            self.notes.append(
                Note(field=key, hint=f"{match[0].split(':')[0].rstrip('}')}}} is {variable} here{suffix}")
            )
        return f"${{{variable}}}"


def may_hold_secret(name: str, text: str) -> bool:
    """Return whether a value has a secret in it: a password in an address, a value of a query, a flag with its value,
    or what looks like a key.
    """
    flag = _FLAG.fullmatch(text)
    return bool(
        _PASSWORD_IN_ADDRESS.search(text)
        or any(_SECRET_NAME.search(key) or len(value) >= HARMLESS_LENGTH for key, value in _QUERY_VALUE.findall(text))
        or (flag and flag[2] and (_SECRET_NAME.search(flag[1]) or may_hold_secret(flag[1], flag[2])))
        or _RANDOM.search(text)
        or redact_secrets(f"{name}={text}") != f"{name}={text}"
    )


def _name_before(values: list[Any], number: int) -> bool:
    """Return whether the argument before says that this one is a secret, as in `--api-key VALUE` and `-H Cookie:..`."""
    if not number or not isinstance(before := values[number - 1], str):
        return False
    flag = _FLAG.fullmatch(before)
    return flag is not None and flag[2] is None and bool(_SECRET_NAME.search(flag[1]))


def _variable(name: str) -> str:
    return re.sub(r"[^A-Z0-9]+", "_", name.upper())
