"""Execution of this process's effects: models, tools and summaries, as configured.

Before: process.py. After: services/runtime/models/model_calls.py, services/runtime/tools/tool_calls.py,
services/runtime/models/summary_calls.py.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

from loomlog.connectors.configuration.concurrency_limits import resolve_limits
from loomlog.connectors.configuration.driver_options import embedder_options
from loomlog.connectors.configuration.load import ProcessConfiguration
from loomlog.connectors.configuration.pricing import find_price as configured_price
from loomlog.connectors.definitions import KINDS
from loomlog.connectors.embedders.options import EmbedderOptions
from loomlog.connectors.protocols import DefinitionsView, EffectClass, LogAppender, SkillShelf, Tool, VolumeBinding
from loomlog.connectors.storage.blobs import FileBlobs
from loomlog.connectors.tools.api_operation import build_api_tools
from loomlog.connectors.tools.context import ChannelRows
from loomlog.connectors.tools.file_skills import FileSkills
from loomlog.connectors.tools.registry import ToolOptions, build_tools, select_granted
from loomlog.connectors.tools.server_info import MemoryInfo, ServerInfo
from loomlog.connectors.tools.tool_guide import ToolGuide
from loomlog.schemas.codec import Codec
from loomlog.services.core.run.commands import EffectResult
from loomlog.services.core.run.react import CallModel, CallTool, Effect, ReconcileTool, Summarise
from loomlog.services.core.run.state import AwaitingModel, AwaitingTools, Compacting, State
from loomlog.services.core.system_agents import CONSOLIDATOR
from loomlog.services.families.ports.call_budgets import CallBudgets
from loomlog.services.families.ports.compactions import DialogueKeeper
from loomlog.services.families.ports.made_volumes import MadeVolumes
from loomlog.services.families.ports.tenant_tools import ToolsOfTenants
from loomlog.services.families.ports.tool_hooks import ToolHooks
from loomlog.services.runtime.clock import clock_ms
from loomlog.services.runtime.content.definition_texts import DefinitionTexts
from loomlog.services.runtime.content.encryption import ContentEncryption
from loomlog.services.runtime.content.redaction import Redaction
from loomlog.services.runtime.content.run_credentials import Credentials
from loomlog.services.runtime.models.context_plugins import ContextPlugins, RedactPlugin, collect_secrets
from loomlog.services.runtime.models.model_calls import ModelCalls, RuntimeProvider
from loomlog.services.runtime.models.previews import Previews
from loomlog.services.runtime.models.provider_queues import ProviderQueueLimits
from loomlog.services.runtime.models.routing import Routing
from loomlog.services.runtime.models.summary_calls import SummaryCalls
from loomlog.services.runtime.settings import RuntimeSettings
from loomlog.services.runtime.telemetry.tracing import Tracing
from loomlog.services.runtime.tools.client_tools import ClientTools
from loomlog.services.runtime.tools.tool_calls import ToolCalls
from loomlog.services.runtime.tools.tool_slots import ToolCallSlots
from loomlog.services.runtime.tools.toolset import ProcessToolset

NO_TOOLS: Mapping[str, Tool] = {}
INTERNAL_DRIVERS = frozenset({"code-js"})
"""Drivers that send nothing out of the process, so context plugins do not apply (runtime parity 5.9)."""
DRIVERS_WITHOUT_RATE_LIMIT_WAITS = frozenset({"mock"})
"""Drivers whose 429s are not waited for (runtime parity 2.9)."""


class EffectHandlers:
    """Executes the effects of this process: model calls, tool calls, summaries."""

    def __init__(
        self, models: ModelCalls, tools: ToolCalls, summaries: SummaryCalls, mask: Callable[[str], str] = str
    ) -> None:
        self.partial_outputs = models.partial_outputs
        self.queues = models.queues
        self.mask = mask
        self.complete_call = tools.complete
        self._models = models
        self._tools = tools
        self._summaries = summaries

    async def close(self) -> None:
        """Close what the calls kept open."""
        await self._models.close()

    async def run(self, effect: Effect, state: State, tenant: str) -> EffectResult:
        """Execute one effect."""
        match effect:
            case CallModel():
                assert isinstance(state, AwaitingModel)
                return await self._models.run(effect, state, tenant)
            case CallTool():
                assert isinstance(state, AwaitingTools)
                return await self._tools.run(effect, state, tenant)
            case ReconcileTool():
                assert isinstance(state, AwaitingTools)
                return await self._tools.reconcile(effect, state, tenant)
            case Summarise():
                assert isinstance(state, Compacting)
                return await self._summaries.run(effect, state, tenant)
            case _:
                raise AssertionError(f"{type(effect).__name__} is not a call")


def volume_bindings(loaded: ProcessConfiguration) -> dict[str, VolumeBinding]:
    """Return the volume folders of this process by volume name."""
    return {
        name: VolumeBinding(name=name, path=str(volume.path), mode=volume.mode, is_default=volume.default)
        for name, volume in loaded.configuration.volumes.items()
    }


def describe_server(loaded: ProcessConfiguration) -> ServerInfo:
    """Return what runs may know of this process."""
    settings, configuration = loaded.settings, loaded.configuration
    policy = configuration.memory.consolidation
    return ServerInfo(
        code_agents=settings.code_agents_enabled,
        max_request_bytes=settings.max_request_bytes,
        scheduler=settings.scheduler_enabled,
        webhooks=settings.webhooks_enabled,
        memory=MemoryInfo(
            embedder=_describe_embedder(embedder_options(configuration, settings)),
            sql=settings.sqlmem_enabled,
            consolidator=CONSOLIDATOR in configuration.agents,
            bands={"merge_threshold": policy.merge_threshold, "related_threshold": policy.related_threshold},
            verify_writes=policy.verify_writes,
            detect_conflicts=policy.detect_conflicts,
        ),
    )


def _describe_embedder(options: EmbedderOptions | None) -> Mapping[str, Any] | None:
    """Return provider, model and dimension, as far as they are configured."""
    if options is None:
        return None
    named = {"provider": options.provider, "model": options.model, "dimension": options.dimensions}
    return {name: value for name, value in named.items() if value}


def file_skills(loaded: ProcessConfiguration) -> FileSkills:
    """Return the skills of the configuration."""
    kind = KINDS["skill"]
    return FileSkills(loaded.configuration.skills, lambda name, skill: kind.hash(name, kind.content_of(skill)))


def build_process_tools(
    loaded: ProcessConfiguration,
    *,
    definitions: DefinitionsView | None = None,
    skills: SkillShelf | None = None,
    channels: ChannelRows | None = None,
) -> dict[str, Tool]:
    """Build the tools that the operator allows; `definitions` and `channels` as runs see them, `skills` instead of
    those of the configuration.
    """
    settings = loaded.settings
    return build_tools(
        ToolOptions(
            bash_enabled=settings.bash_enabled,
            bash_env_names=settings.bash_allowed_env,
            environment=dict(os.environ),
            private_hosts=settings.http_private_host_allowlist,
            bench_enabled=settings.bench_enabled,
            residents_max=settings.max_interactive_children,
            resident_idle_ttl_s=settings.interactive_child_idle_ttl_ms // 1000,
            ledger_path=str(settings.ledger_path or ""),
            ledger_effect=EffectClass(settings.ledger_effect),
            ledger_reconciles=settings.ledger_reconciles,
            server=describe_server(loaded),
            help_root=settings.help_root,
            definitions=definitions,
            skills=skills or file_skills(loaded),
            channels=channels,
        )
    )


def build_effect_handlers(
    loaded: ProcessConfiguration,
    settings: RuntimeSettings,
    *,
    codec: Codec,
    appender: LogAppender,
    tracing: Tracing,
    previews: Previews,
    encryption: ContentEncryption,
    budgets: CallBudgets | None = None,
    routing: Routing,
    hooks: ToolHooks,
    credentials: Credentials,
    definition_texts: DefinitionTexts | None = None,
    clock_ms: Callable[[], int] = clock_ms,
    extra_tools: Mapping[str, Tool] = NO_TOOLS,
    clients: ClientTools | None = None,
    definitions: DefinitionsView | None = None,
    skills: SkillShelf | None = None,
    made_volumes: MadeVolumes | None = None,
    compaction_memory: DialogueKeeper | None = None,
    channels: ChannelRows | None = None,
    tenant_tools: ToolsOfTenants | None = None,
) -> EffectHandlers:
    """Build the effect handlers of this process."""
    configuration = loaded.configuration
    tools = build_process_tools(loaded, definitions=definitions, skills=skills, channels=channels)
    assert not tools.keys() & extra_tools.keys(), f"tools named like built-in ones: {tools.keys() & extra_tools.keys()}"
    tools.update(extra_tools)  # added to the dict that Context already holds
    tools.update(build_api_tools(configuration.local_api))
    guide = ToolGuide(tools, describe_server(loaded))
    routing.definitions.fill_prompt = lambda prompt, names: guide.fill(prompt, select_granted(names, tools))
    shelf = (
        ProcessToolset(tools, tenant_tools=tenant_tools)
        if clients is None
        else ProcessToolset(
            tools,
            client_tools=clients.tools_for,
            missing_client_tool=clients.missing_tool,
            tenant_tools=tenant_tools,
        )
    )
    blobs = FileBlobs(loaded.settings.effective_blob_folder)
    redaction = Redaction(loaded.secrets if loaded.settings.redact_secrets else {})
    priced = {tuple(name.split("/", 1)) for name in configuration.pricing.models}
    prices = {
        (provider, model): price
        for provider, model in priced
        if (price := configured_price(configuration, provider, model)) is not None
    }
    model_calls = ModelCalls(
        {
            name: RuntimeProvider(
                model=model,
                max_concurrent=routing.providers[name].max_concurrent or getattr(model, "max_concurrent", 0),
                retries_rate_limits=routing.providers[name].driver not in DRIVERS_WITHOUT_RATE_LIMIT_WAITS,
                is_external=routing.providers[name].driver not in INTERNAL_DRIVERS,
                api_key_env=routing.providers[name].api_key_env,
                has_key=bool(routing.providers[name].api_key),
            )
            for name, model in routing.models.items()
        },
        prices=prices,
        currency=configuration.pricing.currency,
        tools=shelf,
        blobs=blobs,
        previews=previews,
        tracing=tracing,
        clock_ms=clock_ms,
        mask=redaction.mask_text,
        mask_prefix=redaction.mask_prefix,
        encryption=encryption,
        budgets=budgets,
        availability=routing.availability,
        plugins=build_context_plugins(loaded, credentials),
        queue_limits=provider_queue_limits(loaded),
        credentials=credentials,
        definition_texts=definition_texts,
    )
    return EffectHandlers(
        model_calls,
        ToolCalls(
            shelf,
            volumes=volume_bindings(loaded),
            operator_hosts=settings.http_hosts,
            parallelism=settings.tool_parallelism,
            blobs=blobs,
            tracing=tracing,
            clock_ms=clock_ms,
            mask=redaction.mask_text,
            encryption=encryption,
            hooks=hooks,
            credentials=credentials,
            callers_choose_hosts=settings.callers_choose_hosts,
            mask_results=redaction.mask_result if loaded.settings.redact_secrets else None,
            made_volumes=made_volumes,
            slots=ToolCallSlots(loaded.settings.tool_calls_per_process),
            approval_rules=model_calls.approval_rules,
        ),
        SummaryCalls(
            model_calls,
            blobs=blobs,
            clock_ms=clock_ms,
            mask=redaction.mask_text,
            encryption=encryption,
            memory=compaction_memory,
        ),
        redaction.mask_text,
    )


def provider_queue_limits(loaded: ProcessConfiguration) -> ProviderQueueLimits:
    """Return the depth and timeout of the queues for model calls that wait for a slot of their provider."""
    bounds = resolve_limits(loaded.configuration, loaded.settings)
    return ProviderQueueLimits(depth=bounds.provider_queue_depth, wait_s=bounds.provider_queue_timeout_ms / 1000)


def build_context_plugins(loaded: ProcessConfiguration, credentials: Credentials) -> ContextPlugins | None:
    """Build the plugins that change the conversation on its way to a provider; None when there are none."""
    secrets = collect_secrets(os.environ, loaded.secrets)
    plugins = tuple(
        RedactPlugin(secrets, credentials=credentials, redact_tool_input=block.redact_tool_input)
        for block in loaded.configuration.context_plugins
        if block.enabled
    )
    return ContextPlugins(plugins) if plugins else None
