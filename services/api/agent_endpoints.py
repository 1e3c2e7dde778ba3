"""The agents that may be run: a short list for every reader, and their definitions for operators.

Before: operator_routes.py. After: connectors/configuration/resolve.py.
"""

from dataclasses import asdict

from starlette.requests import Request

from loomlog.connectors.configuration.agent_block import AgentBlock
from loomlog.connectors.configuration.resolve import ResolvedAgent, resolve_agent, unknown_agent
from loomlog.services.api.response_models import (
    AgentDefinitionView,
    AgentLibrary,
    LibraryEntry,
    RunnableAgent,
    RunnableAgents,
)
from loomlog.services.api.responses import JsonResponse, json_response
from loomlog.services.api.service import Service
from loomlog.services.application.errors import RequestRefused
from loomlog.services.core.access.decide import Caller

BUNDLED = "bundled"
"""Source of an agent of the configuration files (parity: reference surfaces 1.4)."""


async def list_runnable_agents(service: Service, caller: Caller, request: Request) -> JsonResponse[RunnableAgents]:
    agents = service.configuration.agents
    names = [name for name in sorted(agents) if not agents[name].internal]
    return json_response({"agents": [_runnable(service, name) for name in names]})


async def get_runnable_agent(service: Service, caller: Caller, request: Request) -> JsonResponse[AgentDefinitionView]:
    name = request.path_params["name"]
    agent = service.configuration.agents.get(name)
    if agent is None:
        raise RequestRefused("not_found", unknown_agent(name, service.configuration.agents))
    return json_response({**_runnable(service, name), "definition": _definition(agent)})


async def list_agent_library(service: Service, caller: Caller, request: Request) -> JsonResponse[AgentLibrary]:
    """List the definitions with the fields of the reference; there are no versions beside the files yet."""
    entries: list[LibraryEntry] = [
        {
            "name": name,
            "source": "static-only",
            "in_static": True,
            "in_substrate": False,
            "version_count": 0,
            "live_version_count": 0,
            "active_def_id": None,
            "active_retired": False,
            "latest_version": 0,
            "last_updated": None,
            "static_definition": _definition(agent),
        }
        for name, agent in sorted(service.configuration.agents.items())
    ]
    return json_response({"entries": entries})


def _runnable(service: Service, name: str) -> RunnableAgent:
    usable = [provider for provider, one in service.providers.items() if one.is_usable]
    resolved = resolve_agent(service.configuration, name, usable=usable)
    if isinstance(resolved, ResolvedAgent):
        return {
            "name": name,
            "source": BUNDLED,
            "description": resolved.description,
            "provider": resolved.provider,
            "model": resolved.model,
            "tools": list(resolved.tools),
            "volumes": [volume.name for volume in resolved.volumes],
            "available": True,
            "unavailable_reason": None,
        }
    agent = service.configuration.agents[name]
    return {
        "name": name,
        "source": BUNDLED,
        "description": agent.description,
        "provider": agent.provider,
        "model": agent.model or None,
        "tools": list(agent.tools),
        "volumes": list(agent.volumes),
        "available": False,
        "unavailable_reason": resolved.message,
    }


def _definition(agent: AgentBlock) -> dict[str, object]:
    """Return the keys of the file that differ from their defaults."""
    defaults = asdict(AgentBlock())
    return {name: value for name, value in asdict(agent).items() if value != defaults[name]}
