"""Agents that an assistant defines for a while: a version of a definition under the assistant's own words.

register_agent makes a version and makes it active; it is retired by itself a day later unless another time is named.
The rules of definitions decide what is allowed, so nothing is stripped from it silently.

Before: server.py finds them in the table. After: the operations of definitions, as dispatch has them.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.services.application.answers.operators import RunnableAgents
from loomlog.services.application.dispatch import Dispatch
from loomlog.services.application.operations.process import LIST_RUNNABLE_AGENTS
from loomlog.services.core.access.rules import own_data, requires
from loomlog.services.core.access.scopes import RUNS_READ, TENANT
from loomlog.services.core.operations import (
    Answer,
    AnyOperation,
    Call,
    Effect,
    Handlers,
    Input,
    McpTool,
    Operation,
    Output,
)
from loomlog.services.core.refusals import Refused
from loomlog.services.families.registry import operations_by_name

LIFETIME_S = 86_400
"""Seconds until an agent is retired whose registration names no time (parity: reference surfaces 3.3)."""
LIFETIME_S_MAX = 365 * 86_400
PROMPT_CHARACTERS_MAX = 65_536
FOR_EVER = -1
BUNDLED = "bundled"
"""Source of an agent of a configuration file."""
OF_FAMILIES = operations_by_name()
CREATE, LIST, RETIRE = (OF_FAMILIES[f"definition.agent_{verb}"] for verb in ("create", "list", "retire"))

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$", description="Name of the agent.")]


class AgentRegister(Input, frozen=True, kw_only=True):
    """An agent by its keys, as in a configuration file."""

    name: Name
    system_prompt: Annotated[
        str, Meta(min_length=1, max_length=PROMPT_CHARACTERS_MAX, description="What the agent is told first.")
    ]
    tools: Annotated[list[str], Meta(min_length=1, description="Names of the tools that it may call.")]
    tier: Annotated[str, Meta(description="Tier of its model.")] | UnsetType = UNSET
    provider: Annotated[str, Meta(description="Provider of its model.")] | UnsetType = UNSET
    model: Annotated[str, Meta(description="Its model.")] | UnsetType = UNSET
    effort: (
        Annotated[Literal["minimal", "low", "medium", "high"], Meta(description="How hard the model thinks.")]
        | UnsetType
    ) = UNSET
    max_tokens: Annotated[int, Meta(ge=1, description="Most tokens of a reply.")] | UnsetType = UNSET
    max_iterations: Annotated[int, Meta(ge=1, description="Most turns of a run.")] | UnsetType = UNSET
    memory_scopes: Annotated[list[str], Meta(description="Scopes of memory that it may use.")] | UnsetType = UNSET
    evaluation_scopes: Annotated[list[str], Meta(description="Whose runs it may judge.")] | UnsetType = UNSET
    channels: Annotated[dict[str, Any], Meta(description="Channels to publish to and to subscribe to.")] | UnsetType = (
        UNSET
    )
    interruption: Annotated[dict[str, Any], Meta(description="Whether it may ask people.")] | UnsetType = UNSET
    description: Annotated[str, Meta(description="What it is for.")] | UnsetType = UNSET
    ttl_seconds: Annotated[
        int, Meta(ge=FOR_EVER, le=LIFETIME_S_MAX, description="Retire it after so long; 0: a day, -1: never.")
    ] = 0


class AgentNamed(Input, frozen=True, kw_only=True):
    """A registered agent."""

    name: Name


class AgentsListed(Input, frozen=True, kw_only=True):
    """Which agents are listed."""

    include_dynamic: Annotated[bool, Meta(description="Also those that no configuration file has.")] = True


class AgentUnregistered(Output, frozen=True, kw_only=True):
    """What was done; false: there was no such agent."""

    name: Annotated[str, Meta(description="Name of the agent.")]
    unregistered: Annotated[bool, Meta(description="Whether a version was retired by this call.")]


REGISTER = Operation(
    name="agent.register",
    summary="Define an agent that can be run at once; it is retired by itself a day later unless ttl_seconds differs.",
    input=AgentRegister,
    output=CREATE.output,
    access=requires(TENANT),
    effect=Effect.WRITE,
    mcp=(McpTool(tool="register_agent"),),
)
UNREGISTER = Operation(
    name="agent.unregister",
    summary="Retire a registered agent; runs under way keep it. Idempotent.",
    input=AgentNamed,
    output=AgentUnregistered,
    access=requires(TENANT),
    effect=Effect.WRITE,
    mcp=(McpTool(tool="unregister_agent"),),
)
LIST_AGENTS = Operation(
    name="agent.list",
    summary="List the agents that may be run.",
    input=AgentsListed,
    output=RunnableAgents,
    access=own_data(RUNS_READ),
    effect=Effect.READ,
    mcp=(McpTool(tool="list_agents"),),
)
OPERATIONS: tuple[AnyOperation, ...] = (REGISTER, UNREGISTER, LIST_AGENTS)


class AgentOperations:
    """The handlers. All raise Refused."""

    def __init__(self, dispatch: Callable[[AnyOperation], Dispatch], *, clock_ms: Callable[[], int]) -> None:
        """`dispatch` returns what carries out an operation of the product."""
        self._dispatch = dispatch
        self._clock_ms = clock_ms

    def by_operation(self) -> Handlers:
        """Return the handlers by their operations."""
        return {REGISTER: self.register, UNREGISTER: self.unregister, LIST_AGENTS: self.list}

    async def register(self, call: Call[AgentRegister]) -> Answer[Any]:
        """Make a version of the agent, and make it active."""
        overlay: dict[str, Any] = msgspec.to_builtins(call.input)
        name, lifetime_s = overlay.pop("name"), overlay.pop("ttl_seconds") or LIFETIME_S
        fields = {"name": name, "overlay": overlay, "promote": True}
        if lifetime_s != FOR_EVER:
            fields["expires_at"] = format_rfc3339(self._clock_ms() + lifetime_s * 1_000)
        return await self._ask(CREATE, call, fields)

    async def unregister(self, call: Call[AgentNamed]) -> Answer[AgentUnregistered]:
        """Retire all versions of the agent."""
        name = call.input.name
        agents: RunnableAgents = (await self._ask(LIST_RUNNABLE_AGENTS, call, {})).value
        if any(one["name"] == name and one["source"] == BUNDLED for one in agents["agents"]):
            raise Refused("invalid_request", f"name: {name} is an agent of a configuration file; remove it there")
        versions = (await self._ask(LIST, call, {"name": name})).value.versions
        # Also those that are retired already, so that a repetition of the call gives each the command that it had.
        answers = [await self._ask(RETIRE, call, {"def_id": one.def_id, "retired": True}) for one in versions]
        positions = tuple(position for answer in answers for position in answer.positions)
        unregistered = any(not one.retired for one in versions)
        return Answer(value=AgentUnregistered(name=name, unregistered=unregistered), positions=positions)

    async def list(self, call: Call[AgentsListed]) -> Answer[RunnableAgents]:
        """Return the agents that may be run."""
        agents: RunnableAgents = (await self._ask(LIST_RUNNABLE_AGENTS, call, {})).value
        shown = [one for one in agents["agents"] if call.input.include_dynamic or one["source"] == BUNDLED]
        return Answer(value={"agents": shown})

    async def _ask(self, operation: AnyOperation, call: Call[Any], fields: dict[str, Any]) -> Answer[Any]:
        return await self._dispatch(operation).request(operation, call.principal, fields)
