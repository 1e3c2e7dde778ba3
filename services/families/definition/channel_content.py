"""Content of the lines of channels that are declared at run time: what a file says of one, and a narrower name.

The lines of channels of the scope global are shared (tenant ""); those of other scopes belong to a tenant.

Before: decide.py; services/families/channel/declarations.py. After: connectors/configuration/channel_block.py.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from loomlog.connectors.configuration.channel_block import ChannelBlock, iter_channel_problems
from loomlog.connectors.configuration.model import list_problems
from loomlog.connectors.definitions import DefinitionProblem
from loomlog.services.families.definition import limits

GLOBAL = "global"
FIELDS = ("description", "scope", "semantic", "default_ttl", "max_messages", "publisher", "period")
NAME = re.compile(r"[A-Za-z0-9_-]{1,128}", re.ASCII)


@cache
def _adapter() -> TypeAdapter[ChannelBlock]:
    return TypeAdapter(ChannelBlock)


def check_channel_name(name: str) -> str:
    """Return the name. Raises DefinitionProblem."""
    if not NAME.fullmatch(name):
        raise DefinitionProblem("bad_name", f"name is {name[:80]!r}: expected 1 to 128 letters, digits, _ and -")
    return name


def read_block(name: str, content: Mapping[str, Any]) -> ChannelBlock:
    """Return the channel that a content describes. Raises DefinitionProblem."""
    try:
        block = _adapter().validate_python(dict(content))
    except ValidationError as error:
        problem = list_problems(error)[0]
        path = ".".join(map(str, problem.path))
        text = "it is missing" if problem.is_missing else problem.expected
        raise DefinitionProblem("invalid_definition", f"{path}: {text}") from None
    for key, text in iter_channel_problems(name, block):
        raise DefinitionProblem("invalid_definition", f"{key}: {text}")
    if len(block.description.encode(errors="surrogatepass")) > limits.DESCRIPTION_BYTES_MAX:
        raise DefinitionProblem("too_large", f"description: at most {limits.DESCRIPTION_BYTES_MAX} bytes")
    return block


def block_content(block: ChannelBlock) -> dict[str, Any]:
    """Return the content that a version has."""
    return {field: getattr(block, field) for field in FIELDS}


def parse_channel(tenant: str, name: str, content: Mapping[str, Any]) -> ChannelBlock:
    """Return the channel of a line's content. Raises DefinitionProblem."""
    check_channel_name(name)
    block = read_block(name, content)
    if (block.scope == GLOBAL) != (tenant == ""):
        raise DefinitionProblem(
            "invalid_definition", "scope: global channels are those of all tenants, and others belong to a tenant"
        )
    return block
