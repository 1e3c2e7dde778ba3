"""Contents of definitions: what is refused before any command is sent."""

from typing import Any

import pytest

from loomlog.connectors.definitions import KINDS, DefinitionProblem
from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.services.families.definition.author import Author
from loomlog.services.families.definition.composition import Composer, Origin

AGENT = KINDS["agent"]
OPERATOR = Author(tenant="acme", subject="op", command_id="c", issued_at_ms=1)


@pytest.mark.parametrize("name", ["memory:userinfo", "tool:Context.guid"])
async def test_an_unknown_placeholder_is_refused_and_one_after_a_backslash_is_text(name: str) -> None:
    no_table: Any = None  # a new agent has no origin to look up
    composer = Composer(no_table, MemoryBlobs())
    escaped = {"model": "m", "system_prompt": f"A \\{{{{{name}}}}} {{{{memory:user_info}}}}"}
    made = await composer.compose(AGENT, "a", escaped, Origin(), OPERATOR)
    assert made.content["system_prompt"] == escaped["system_prompt"]
    wrong = {"model": "m", "system_prompt": f"A {{{{{name}}}}}"}
    with pytest.raises(DefinitionProblem, match=f"unknown placeholder {name.partition(':')[2]}"):
        await composer.compose(AGENT, "a", wrong, Origin(), OPERATOR)
