"""Loader of the scripts of code agents: `<root>/<agent>/index.js` becomes the value of `code_body`.

An agent has a script in its own folder when its provider runs code and it has no `code_body`; `code` names another
folder, or is the script itself, as in files of the reference. A path that leaves the root, also through a link, is
refused. Reads files and blocks, as load.py does.

Before: load.py has the values of all files. After: model.py checks them.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from loomlog.connectors.configuration.findings import ConfigurationFinding
from loomlog.connectors.configuration.routing import CODE_DRIVER
from loomlog.connectors.configuration.storable_text import describe_text_problem
from loomlog.connectors.configuration.tree import MappingNode, find_mark

MAX_CODE_BYTES = 262_144
"""Bytes of a script; the limit of the reference."""
SCRIPT = "index.js"
_SCRIPT = re.compile(r"[\n;(){}=]")
"""What a script has and the name of a folder cannot have."""
_FOLDER_NAME = re.compile(r"[A-Za-z0-9_-]+(?:/[A-Za-z0-9_-]+)*")


def load_code_bodies(values: Mapping[str, object], root: MappingNode, folder: Path) -> list[ConfigurationFinding]:
    """Set `code_body` to the script of each code agent; return the findings."""
    findings: list[ConfigurationFinding] = []
    for name, agent in _list_mappings(values.get("agents")):
        body, code = agent.get("code_body") or "", agent.get("code") or ""
        if not isinstance(body, str) or not isinstance(code, str):
            continue  # the model reports what is wrong with them
        path: tuple[str | int, ...] = ("agents", name, "code_body" if body else "code")
        try:
            if body and code:
                raise ValueError("code and code_body are both given; give one of them")
            if not body and _SCRIPT.search(code):
                agent["code_body"] = body = code
                agent["code"] = code = ""
            if not body and (code or _runs_code(values, agent)):
                agent["code_body"] = body = _read_script(folder, code or name)
            if len(body.encode()) > MAX_CODE_BYTES:
                raise ValueError(f"the script has {len(body.encode())} bytes; at most {MAX_CODE_BYTES} are taken")
        except ValueError as error:
            mark = find_mark(root, path)
            findings.append(ConfigurationFinding(message=f"agents.{name}: {error}", file=mark.file, line=mark.line))
    return findings


def find_disallowed_code_agents(values: Mapping[str, object], root: MappingNode) -> list[ConfigurationFinding]:
    """Return one warning for each code agent, where the operator does not allow them."""
    findings: list[ConfigurationFinding] = []
    for name, agent in _list_mappings(values.get("agents")):
        if agent.get("code_body") or agent.get("code") or _runs_code(values, agent):
            mark = find_mark(root, ("agents", name), of_key=True)
            message = f"agents.{name} is a code agent; it cannot run without LOOMLOG_CODE_AGENTS_ENABLED=1"
            findings.append(ConfigurationFinding(message=message, file=mark.file, line=mark.line))
    return findings


def _runs_code(values: Mapping[str, object], agent: Mapping[str, object]) -> bool:
    provider = agent.get("provider")
    return any(
        name == provider and block.get("driver") == CODE_DRIVER
        for name, block in _list_mappings(values.get("providers"))
    )


def _read_script(root: Path, name: str) -> str:
    """Return the text of a script. Raises ValueError, naming the problem."""
    shown = f"{root.name}/{name}/{SCRIPT}"
    if not _FOLDER_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no folder of scripts: letters, digits, _ and -, in parts with / between")
    path = root / name / SCRIPT
    try:
        if not path.resolve(strict=True).is_relative_to(root.resolve(strict=True)):
            raise ValueError(f"{shown} leads out of the folder of scripts")
        with path.open("rb") as file:
            data = file.read(MAX_CODE_BYTES + 1)
        if not data.strip():
            raise ValueError(f"{shown} is empty")
        text = data.decode()
        if problem := describe_text_problem(text):
            raise ValueError(f"{shown}: {problem}")
        return text
    except UnicodeDecodeError as error:
        raise ValueError(f"{shown} is not UTF-8") from error
    except OSError as error:
        raise ValueError(
            f"it has no code_body, and {shown} cannot be read: {error.strerror or 'it leads nowhere'}"
        ) from error


def _list_mappings(block: object) -> list[tuple[str, dict[str, object]]]:
    """Return the mappings below a block that have the right form."""
    return [(key, value) for key, value in block.items() if isinstance(value, dict)] if isinstance(block, dict) else []
