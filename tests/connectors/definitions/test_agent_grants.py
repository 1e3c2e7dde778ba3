"""A grant of an agent made at run time reaches its runs as that of a file does."""

from dataclasses import fields, replace

from loomlog.connectors.configuration.agent_block import AgentBlock
from loomlog.connectors.configuration.model import Configuration, ProviderBlock
from loomlog.connectors.configuration.resolve import GRANTED_FIELDS, NO_GRANTS, ResolvedAgent, resolve_agent
from loomlog.connectors.definitions.agent import AGENT
from loomlog.schemas.generated.values import AgentGrants, CoreBlock
from tests.connectors.definitions import examples

OVERLAY = {key: value for key, value in examples.AGENT.items() if key != "code_body"}


def grants_of(block: AgentBlock) -> AgentGrants:
    configuration = Configuration(providers={"mock": ProviderBlock(driver="mock")})
    agent = resolve_agent(configuration, "x", block=block, usable={"mock"})
    assert isinstance(agent, ResolvedAgent)
    return agent.grants or NO_GRANTS


def test_every_field_of_a_definition_that_is_a_grant_reaches_the_grants():
    block: AgentBlock = AGENT.block_of(AGENT.compose("x", OVERLAY))
    grants = grants_of(block)
    for name in GRANTED_FIELDS:
        assert getattr(grants, name) == getattr(block, name), name
    assert grants.core_blocks == (
        CoreBlock(label="l", scope="agent", limit_bytes=1, read_only=True),
        CoreBlock(label="m", scope="agent"),
    )
    assert (grants.memory_consolidation, grants.channels_publish) == (True, ("a",))
    unchanged = {name for name in AgentGrants.__struct_fields__ if getattr(grants, name) == getattr(NO_GRANTS, name)}
    assert unchanged == set()


def test_a_field_that_is_taken_away_is_no_grant():
    full: AgentBlock = AGENT.block_of(AGENT.compose("x", OVERLAY))
    unset = AgentBlock()
    grants = grants_of(full)
    for name in (*GRANTED_FIELDS, "core_blocks", "memory_consolidation"):
        default = getattr(unset, name)
        changed = grants_of(replace(full, **{name: default}))
        differing = [one for one in AgentGrants.__struct_fields__ if getattr(changed, one) != getattr(grants, one)]
        assert differing == [name]


def test_every_memory_key_of_an_agent_is_a_grant():
    keys = [entry.name for entry in fields(AgentBlock)]
    of_memory = {name for name in keys if name.startswith(("memory_", "sql_", "core_", "inherit_"))}
    assert of_memory <= set(AgentGrants.__struct_fields__)
    assert len(of_memory) == 12
