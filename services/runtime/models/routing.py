"""The parts of a runtime that decide which model a run is sent to, opened together.

Before: resources.py. After: agent_definitions.py for runs that start, availability.py for calls that fail,
provider_probe.py in parallel.
"""

import asyncio
from collections.abc import Callable, Mapping

from loomlog.connectors.configuration.load import ProcessConfiguration
from loomlog.connectors.configuration.providers import (
    Provider,
    build_providers,
    run_key_provider_ids,
    usable_provider_ids,
)
from loomlog.connectors.configuration.routing import CODE_DRIVER, collect_patterns
from loomlog.connectors.models import model_capabilities
from loomlog.connectors.models.catalog import build_models
from loomlog.connectors.protocols import LogAppender, Model
from loomlog.schemas.codec import Codec
from loomlog.services.runtime.models.agent_definitions import AgentDefinitions
from loomlog.services.runtime.models.availability import AvailabilityTracker, ModelTraits
from loomlog.services.runtime.models.provider_probe import ProviderProber
from loomlog.services.stream.global_tables.global_table import GlobalTable, GlobalTables
from loomlog.services.stream.global_tables.providers import PROVIDERS


class Routing:
    """Routing of one process; `models` are the drivers of all providers it can call, including those usable only by
    runs with a key of their own. Those are never called for anything else, so they are not probed.
    """

    def __init__(
        self,
        loaded: ProcessConfiguration,
        environ: Mapping[str, str],
        *,
        codec: Codec,
        appender: LogAppender,
        clock_ms: Callable[[], int],
        name: str,
        topic: str,
    ) -> None:
        providers = build_providers(loaded.configuration, loaded.settings, environ)
        usable = usable_provider_ids(providers.values())
        callable_ids = usable | run_key_provider_ids(providers.values(), loaded.settings)
        self.providers = {name: provider for name, provider in providers.items() if name in callable_ids}
        self.models: dict[str, Model] = build_models(self.providers)
        self.global_table = GlobalTable(codec, topic, PROVIDERS)
        self.availability = AvailabilityTracker(
            self.global_table,
            {name: model_traits(provider) for name, provider in self.providers.items()},
            codec=codec,
            appender=appender,
            clock_ms=clock_ms,
            name=name,
        )
        self.definitions = AgentDefinitions(
            loaded.configuration,
            usable,
            availability_table=lambda: self.global_table.table,
            clock_ms=clock_ms,
            pins_after_success=loaded.settings.fallback_pin_after_success,
            unbounded_providers=[
                name for name, model in self.models.items() if model.capabilities.unbounded_iterations
            ],
            time_limits_s={
                name: loaded.settings.code_agents_run_timeout_seconds
                for name, provider in self.providers.items()
                if provider.driver == CODE_DRIVER
            },
            key_names={name: entry.api_key_env for name, entry in self.providers.items() if entry.api_key_env},
        )
        self._pattern_providers = sorted({provider for provider, _ in collect_patterns(loaded.configuration)} & usable)
        self.prober = ProviderProber(
            self.global_table,
            {name: model for name, model in self.models.items() if name in usable},
            codec=codec,
            appender=appender,
            clock_ms=clock_ms,
            name=name,
            interval_s=loaded.settings.resolve_probe_interval_ms / 1000,
        )

    async def open(self, tables: GlobalTables) -> None:
        """Read what is known of the models, and probe providers without a list of theirs. Raises Transient."""
        await tables.open(self.global_table)
        await self.prober.probe(self.unlisted_providers())

    def unlisted_providers(self) -> tuple[str, ...]:
        """Return the providers with model patterns that have not listed any model; a pattern matches nothing until
        then.
        """
        listed = self.global_table.table.listings()
        return tuple(name for name in self._pattern_providers if not listed.get(name))

    def start_tasks(
        self, tasks: asyncio.TaskGroup, *, is_active_prober: Callable[[], bool]
    ) -> list[asyncio.Task[None]]:
        """Start the background tasks. `is_active_prober`: whether this process probes now."""
        return [
            tasks.create_task(self.availability.run(), name="marks of models"),
            tasks.create_task(self.prober.run(is_active_prober), name="prober"),
        ]


def model_traits(provider: Provider) -> ModelTraits:
    """Return the properties of a provider's models that a fallback needs."""
    return ModelTraits(
        supports_vision=lambda model: model_capabilities.provider_supports_vision(
            provider.driver, model, provider.options, provider.capabilities
        ),
        non_thinking_sibling=lambda model: model_capabilities.non_thinking_sibling(provider.driver, model),
        api_key_env=provider.api_key_env,
        has_key=bool(provider.api_key),
        has_prompt_cache=model_capabilities.has_native_prompt_cache(provider.driver, provider.capabilities),
    )
