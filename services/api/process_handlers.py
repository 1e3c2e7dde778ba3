"""The handlers of the operations on what this process knows by itself. Formats as in reference surfaces 1.9.

Before: service.py. After: routing_view.py, shared_insights.py, loomlog.connectors.configuration; the application for
what needs the log.
"""

import asyncio
from typing import TYPE_CHECKING

from loomlog.connectors.configuration.agent_block import AgentBlock
from loomlog.connectors.configuration.findings import did_you_mean
from loomlog.connectors.configuration.presets import KIND, Preset, load_presets
from loomlog.connectors.configuration.resolve import ResolvedAgent, resolve_agent, unknown_agent
from loomlog.connectors.definitions import KINDS
from loomlog.connectors.errors import ConnectorError, Permanent
from loomlog.connectors.http.insights_report import InsightsReport
from loomlog.connectors.models.catalog import build_model
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.services.api.configuration_view import (
    features_json,
    limits_json,
    models_json,
    providers_json,
    retention_json,
)
from loomlog.services.api.routing_view import aliases_json, resolver_json, routing_json
from loomlog.services.application.answers.operators import (
    AgentDefinitionView,
    ConfigInstance,
    ConfigView,
    Me,
    ModelAliasList,
    PresetContent,
    PresetList,
    PresetSummary,
    ProviderModels,
    Resolver,
    RetentionView,
    Routing,
    RunnableAgent,
    RunnableAgents,
)
from loomlog.services.application.health.components import insights_check
from loomlog.services.application.log.json_types import HealthCheck, HealthReport
from loomlog.services.application.operations import process as api
from loomlog.services.application.resources import clock_ms
from loomlog.services.core.access.scopes import SCOPES
from loomlog.services.core.availability import AvailabilityTable
from loomlog.services.core.check import FAIL, Check
from loomlog.services.core.operations import Answer, Call, Handlers, NoInput
from loomlog.services.core.refusals import Refused
from loomlog.services.families.ports.runnable_agents import RunnableDefinition

if TYPE_CHECKING:  # it opens these handlers
    from loomlog.services.api.service import Service

AGENT = KINDS["agent"]
LIST_MODELS_WAIT_S = 10.0
"""Seconds to wait for a provider's list of models. Parity: reference surfaces 1.9."""


class ProcessHandlers:
    """One method for each operation. All raise Refused."""

    def __init__(self, service: "Service") -> None:
        self._service = service

    def by_operation(self) -> Handlers:
        """Return the handlers by their operations."""
        return {
            api.GET_CALLER: self.caller,
            api.GET_INSIGHTS: self.insights,
            api.GET_ROUTING: self.routing,
            api.LIST_MODEL_ALIASES: self.model_aliases,
            api.LIST_PROVIDER_MODELS: self.provider_models,
            api.GET_RESOLVER: self.resolver,
            api.PROBE_PROVIDERS: self.probe,
            api.GET_HEALTH_REPORT: self.health_report,
            api.LIST_RUNNABLE_AGENTS: self.runnable_agents,
            api.GET_RUNNABLE_AGENT: self.runnable_agent,
            api.LIST_PRESETS: self.presets,
            api.GET_PRESET: self.preset,
            api.GET_CONFIG: self.config,
            api.GET_RETENTION: self.retention,
        }

    async def caller(self, call: Call[NoInput]) -> Answer[Me]:
        """Return who asks."""
        caller = call.principal
        return Answer(
            value={
                "tenant_id": caller.tenant,
                "subject": caller.subject,
                "name": caller.name,
                "scopes": sorted(caller.scopes & SCOPES),
                "is_admin": caller.is_admin,
                "is_isolated": caller.is_isolated,
                "legacy": caller.legacy,
                "open_mode": caller.open_mode,
                "capabilities": {
                    "mcp_allow_dynamic_stdio": False,
                    "http_host_allowlist_configured": bool(self._service.http_hosts),
                },
            }
        )

    async def insights(self, call: Call[NoInput]) -> Answer[InsightsReport]:
        """Return the live figures."""
        return Answer(value=await self._service.insights.report())

    # --- models ------------------------------------------------------------------------------------------------------

    async def routing(self, call: Call[NoInput]) -> Answer[Routing]:
        """Return the models of plans and tiers."""
        now_ms = clock_ms()
        view = routing_json(
            self._service.configuration,
            self._service.providers,
            self._availability(),
            now_ms=now_ms,
            is_admin=call.caller.is_admin,
            operator_key_restricted=call.caller.operator_key_restricted,
        )
        return Answer(value={"generated_at": format_rfc3339(now_ms), **view})

    async def model_aliases(self, call: Call[NoInput]) -> Answer[ModelAliasList]:
        """Return the model aliases of the configuration."""
        return Answer(value=aliases_json(self._service.configuration))

    async def provider_models(self, call: Call[api.ProviderNamed]) -> Answer[ProviderModels]:
        """Return a provider's models, requested from the provider now."""
        name, service = call.input.provider_id, self._service
        provider = service.providers.get(name)
        if provider is None:
            raise Refused("provider_unknown", f"there is no provider {name[:80]}")
        if not provider.is_usable:
            raise Refused("provider_unavailable", f"{name} cannot be used: {provider.unusable_reason}")
        try:
            model = service.models.get(name)
            if model is None:
                model = service.models[name] = build_model(provider)
            async with asyncio.timeout(LIST_MODELS_WAIT_S):
                listed = await model.list_models()
        except TimeoutError as error:
            late = f"{name} has not listed its models within {LIST_MODELS_WAIT_S:g} s"
            raise Refused("provider_list_failed", late) from error
        except ConnectorError as error:
            code = "provider_unavailable" if isinstance(error, Permanent) else "provider_list_failed"
            raise Refused(code, f"{name} has not listed its models: {error}") from error
        return Answer(value={"provider": name, "models": listed})

    async def resolver(self, call: Call[NoInput]) -> Answer[Resolver]:
        """Return the availability of providers and models."""
        return Answer(value=self._resolver_json(self._availability()))

    async def probe(self, call: Call[NoInput]) -> Answer[Resolver]:
        """Probe the providers from a runtime: only the runtimes' connection to the providers matters."""
        usable = [name for name, provider in self._service.providers.items() if provider.is_usable]
        table, position = await self._service.application.probes.probe(call.principal, usable)
        return Answer(value=self._resolver_json(table), positions=(position,) if position else ())

    def _availability(self) -> AvailabilityTable:
        """Return the availability of models; empty while the log is unavailable."""
        application = self._service.current_application
        return AvailabilityTable() if application is None else application.provider_table.table

    def _resolver_json(self, table: AvailabilityTable) -> Resolver:
        now_ms = clock_ms()
        view = resolver_json(self._service.providers, table, now_ms=now_ms)
        return {"generated_at": format_rfc3339(now_ms), **view}

    # --- health ------------------------------------------------------------------------------------------------------

    async def health_report(self, call: Call[NoInput]) -> Answer[HealthReport]:
        """Make the checks of `loomlog doctor` that this process can make; what fails is an answer too."""
        checks = [*await self._service.application.health.checks(), await self._check_insights()]
        is_ok = not any(check.state == FAIL for check in checks)
        return Answer(value={"ok": is_ok, "checks": list(map(_check_json, checks))})

    async def _check_insights(self) -> Check:
        place = self._service.insights.place
        if not place:
            return insights_check("")
        try:
            report = await self._service.insights.report()
        except Refused as refusal:
            return insights_check(place, error=refusal.message)
        return insights_check(place, lag_records=report["lag_records"])

    # --- configuration -----------------------------------------------------------------------------------------------

    async def runnable_agents(self, call: Call[NoInput]) -> Answer[RunnableAgents]:
        """Return the agents that may be run, of the files and made at run time."""
        resolved = await self._service.application.runnable_agents.list(call.principal.tenant)
        shown = [(one, block) for one in resolved if not (block := AGENT.block_of(one.content)).internal]
        return Answer(value={"agents": [self._runnable(one, block) for one, block in shown]})

    async def runnable_agent(self, call: Call[api.RunnableAgentNamed]) -> Answer[AgentDefinitionView]:
        """Return an agent with its definition."""
        name = call.input.name
        one = await self._service.application.runnable_agents.find(call.principal.tenant, name)
        if one is None:
            raise Refused("not_found", unknown_agent(name, self._service.configuration.agents))
        block = AGENT.block_of(one.content)
        return Answer(value={**self._runnable(one, block), "definition": dict(one.content)})

    def _runnable(self, one: RunnableDefinition, block: AgentBlock) -> RunnableAgent:
        usable = [provider for provider, known in self._service.providers.items() if known.is_usable]
        resolved = resolve_agent(self._service.configuration, one.name, usable=usable, block=block)
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

    async def config(self, call: Call[NoInput]) -> Answer[ConfigView]:
        """Return what this installation offers; a caller without a token sees less, an administrator more."""
        service, caller, now_ms = self._service, call.principal, clock_ms()
        routing = routing_json(
            service.configuration,
            service.providers,
            self._availability(),
            now_ms=now_ms,
            is_admin=caller.is_admin,
            operator_key_restricted=caller.operator_key_restricted,
        )
        instance: ConfigInstance = {"version": service.version}
        view: ConfigView = {
            "generated_at": format_rfc3339(now_ms),
            "view": "public",
            "instance": instance,
            "features": features_json(service.features, is_admin=caller.is_admin),
            "providers": providers_json(routing),
            "models": models_json(routing),
            "search": (),
        }
        if caller.scopes:
            view["view"] = "admin" if caller.is_admin else "authenticated"
            instance |= {"commit": service.commit, "build_time": service.built, "url": service.public_url}
            view["user_tiers"] = routing["user_tiers"]
            view["limits"] = limits_json(service.configuration.concurrency, max_request_bytes=service.max_request_bytes)
        return Answer(value=view)

    async def retention(self, call: Call[NoInput]) -> Answer[RetentionView]:
        """Return what is kept how long."""
        hours = self._service.memory_changes_hours
        return Answer(value=retention_json(is_admin=call.caller.is_admin, memory_changes_hours=hours))

    async def presets(self, call: Call[NoInput]) -> Answer[PresetList]:
        """Return the configuration layers that come with the program."""
        return Answer(value={"units": [_preset_json(preset) for preset in load_presets().values()]})

    async def preset(self, call: Call[api.PresetNamed]) -> Answer[PresetContent]:
        """Return a configuration layer."""
        name = call.input.name
        preset = load_presets().get(name)
        if preset is None:
            raise Refused("unknown_preset", f"there is no preset {name[:80]}{did_you_mean(name[:80], load_presets())}")
        return Answer(value={**_preset_json(preset), "content": preset.content})


def _check_json(check: Check) -> HealthCheck:
    return {"name": check.name, "state": check.state, "text": check.text, "remedy": check.remedy}


def _preset_json(preset: Preset) -> PresetSummary:
    return {"name": preset.name, "kind": KIND, "description": preset.description}
