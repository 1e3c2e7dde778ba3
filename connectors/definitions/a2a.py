"""The kinds a2aagent, an agent elsewhere that is called, and a2aservercard, what other installations see of our agents.

Before: kind.py, mcp_server.py. After: kinds.py.
"""

from typing import Annotated, Literal

from pydantic import Field

from loomlog.connectors.configuration.field_classes import NEUTRAL, Bound, Grant, Order
from loomlog.connectors.configuration.field_types import AgentName, EnvName, StringList, Switch, configuration_block
from loomlog.connectors.definitions.kind import Kind
from loomlog.connectors.definitions.mcp_server import require_url
from loomlog.connectors.definitions.problems import DefinitionProblem, quote

Text = Annotated[str, Field(min_length=1)]


@configuration_block
class PeerAuth:
    """How we prove who we are; `bearer_credential_ref` names a credential of the run."""

    scheme: Literal["http", "apiKey", "oauth2", "mtls"]
    bearer_credential_ref: str = ""


@configuration_block
class ExpectedSkill:
    """A skill of the peer, which becomes a tool."""

    id: Text
    required: Switch = False


@configuration_block
class A2aAgentBlock:
    """Content of an agent elsewhere: the address of its card, or an endpoint with the binding it speaks."""

    agent_card_url: Annotated[str, Grant(order=Order.HOST, held="hosts")] = ""
    endpoint: Annotated[str, Grant(order=Order.HOST, held="hosts")] = ""
    binding: Annotated[Literal["jsonrpc", "grpc", "rest"] | None, NEUTRAL] = None
    auth: Annotated[PeerAuth | None, Grant(order=Order.UNSET)] = None
    expected_skills: Annotated[tuple[ExpectedSkill, ...], NEUTRAL] = ()
    verify_signed_card: Annotated[Switch, Bound(words=(True, False))] = False


@configuration_block
class CardProvider:
    """Organization that offers the agents."""

    organization: str = ""
    url: str = ""


@configuration_block
class CardCapabilities:
    """Parts of the protocol that the card promises."""

    streaming: Switch = False
    push_notifications: Switch = False
    extended_agent_card: Switch = False


@configuration_block
class ExposedAgent:
    """An agent of ours, as the skill that others call."""

    agent_name: AgentName
    skill_id: Text
    skill_name: str = ""
    description: str = ""
    tags: StringList = ()
    input_modes: StringList = ()
    output_modes: StringList = ()


@configuration_block
class SecurityScheme:
    """How others prove who they are."""

    kind: Literal["http", "apiKey"]
    scheme: str = ""


@configuration_block
class A2aServerCardBlock:
    """Content of a card."""

    name: Annotated[Text, NEUTRAL]
    description: Annotated[str, NEUTRAL] = ""
    provider: Annotated[CardProvider | None, NEUTRAL] = None
    capabilities: Annotated[CardCapabilities | None, NEUTRAL] = None
    exposed_agents: Annotated[tuple[ExposedAgent, ...], Grant(order=Order.EXPOSED, held="agents")] = ()
    security_schemes: Annotated[tuple[SecurityScheme, ...], NEUTRAL] = ()
    sign_with_key_env: Annotated[EnvName | None, Grant(order=Order.UNSET)] = None


def _check_agent(agent: A2aAgentBlock) -> None:
    if agent.agent_card_url:
        if agent.endpoint or agent.binding:
            message = "agent_card_url comes with endpoint or binding; give either the card, or both of them"
            raise DefinitionProblem("invalid_definition", message)
        require_url("agent_card_url", agent.agent_card_url)
    elif not agent.endpoint:
        raise DefinitionProblem("missing_field", "missing required field: agent_card_url (or endpoint and binding)")
    elif agent.binding is None:
        raise DefinitionProblem("missing_field", "missing required field: binding (for an endpoint)")
    elif agent.binding != "grpc":
        require_url("endpoint", agent.endpoint)


def _check_card(card: A2aServerCardBlock) -> None:
    seen: set[str] = set()
    for position, skill in enumerate(exposed.skill_id for exposed in card.exposed_agents):
        if skill in seen:
            message = f"exposed_agents[{position}].skill_id: {quote(skill)} is the skill of another agent"
            raise DefinitionProblem("invalid_definition", message)
        seen.add(skill)


A2A_AGENT = Kind(
    name="a2aagent",
    tool="A2AAgentDef",
    block=A2aAgentBlock,
    alternatives=(frozenset({"agent_card_url"}), frozenset({"endpoint", "binding"})),
    check=_check_agent,
)
A2A_SERVER_CARD = Kind(name="a2aservercard", tool="A2AServerCardDef", block=A2aServerCardBlock, check=_check_card)
