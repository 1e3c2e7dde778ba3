"""The kind skill: a text that an agent loads when it needs it, and the files that the text refers to.

Files are hashed when there are some; a skill without files has the hash of the reference, which knows none.

Before: kind.py, connectors/configuration/model.py. After: kinds.py.
"""

import re
from typing import Any

from loomlog.connectors.configuration.model import SkillBlock
from loomlog.connectors.definitions.agent import check_tools
from loomlog.connectors.definitions.canonical import join_path
from loomlog.connectors.definitions.go_json import select_set, sort_keys
from loomlog.connectors.definitions.kind import Content, Kind
from loomlog.connectors.definitions.problems import DefinitionProblem

MAX_BODY_BYTES = 131_072
MAX_FILES = 64
MAX_FILES_BYTES = 1_048_576
"""Bytes of all files of a skill together."""
MAX_PATH_LENGTH = 255
_SEGMENT = re.compile(r"(?!\.\.?\Z)[^/\\\x00-\x1f\x7f]+\Z")


def _check(skill: SkillBlock) -> None:
    if not skill.body.strip():
        raise DefinitionProblem("missing_field", "missing required field: body (it is blank)")
    check_tools(skill.tools)
    if len(skill.files) > MAX_FILES:
        raise DefinitionProblem("too_many", f"files: {len(skill.files)} files; at most {MAX_FILES} are taken")
    for path in skill.files:
        if len(path) > MAX_PATH_LENGTH or not all(map(_SEGMENT.match, path.split("/"))):
            expected = f"a relative path without . and .. of at most {MAX_PATH_LENGTH} characters"
            raise DefinitionProblem("invalid_definition", f"{join_path('files', path)}: expected {expected}")


def _hashed(name: str, content: Content) -> dict[str, Any]:
    return select_set(
        {**content, "name": name, "files": sort_keys(content.get("files", {}))},
        ("body", "description", "files", "name", "tools"),
    )


SKILL = Kind(
    name="skill",
    tool="SkillDef",
    id_prefix="sdf_",
    forks_promote=False,
    has_verify=True,
    block=SkillBlock,
    byte_limits={"body": MAX_BODY_BYTES, "files": MAX_FILES_BYTES},
    check=_check,
    hashed=_hashed,
    normalised="body",
    granted=lambda content: tuple(content.get("tools", ())),
)
