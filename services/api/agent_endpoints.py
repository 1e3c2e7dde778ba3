"""The agents that may be run, of the files and made at run time: for every reader, and with definitions for members.

Before: operator_routes.py. After: services/application/definitions.py, connectors/configuration/resolve.py.
"""

from starlette.requests import Request

from loomlog.connectors.configuration.agent_block import AgentBlock
from loomlog.connectors.configuration.resolve import ResolvedAgent, resolve_agent, unknown_agent
from loomlog.connectors.definitions import KINDS
from loomlog.services.api.responses import JsonResponse, json_response
from loomlog.services.api.service import Service
from loomlog.services.application.answers.operators import (
    AgentDefinitionView,
    RunnableAgent,
    RunnableAgents,
)
from loomlog.services.application.definitions import RunnableDefinition
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.refusals import Refused

AGENT = KINDS["agent"]


async def list_runnable_agents(service: Service, caller: Caller, request: Request) -> JsonResponse[RunnableAgents]:
    resolved = await service.application.definitions.runnable_agents(caller)
    shown = [(one, block) for one in resolved if not (block := AGENT.block_of(one.content)).internal]
    return json_response({"agents": [_runnable(service, one, block) for one, block in shown]})


async def get_runnable_agent(service: Service, caller: Caller, request: Request) -> JsonResponse[AgentDefinitionView]:
    name = request.path_params["name"]
    one = await service.application.definitions.runnable_agent(caller, name)
    if one is None:
        raise Refused("not_found", unknown_agent(name, service.configuration.agents))
    block = AGENT.block_of(one.content)
    return json_response({**_runnable(service, one, block), "definition": dict(one.content)})


def _runnable(service: Service, one: RunnableDefinition, block: AgentBlock) -> RunnableAgent:
    usable = [provider for provider, known in service.providers.items() if known.is_usable]
    resolved = resolve_agent(service.configuration, one.name, usable=usable, block=block)
    if isinstance(resolved, ResolvedAgent):
        return {
            "name": one.name,
            "source": one.source,
            "description": resolved.description,
            "provider": resolved.provider,
            "model": resolved.model,
            "tools": list(resolved.tools),
            "volumes": [volume.name for volume in resolved.volumes],
            "available": True,
            "unavailable_reason": None,
        }
    return {
        "name": one.name,
        "source": one.source,
        "description": block.description,
        "provider": block.provider,
        "model": block.model or None,
        "tools": list(block.tools),
        "volumes": list(block.volumes),
        "available": False,
        "unavailable_reason": resolved.message,
    }
