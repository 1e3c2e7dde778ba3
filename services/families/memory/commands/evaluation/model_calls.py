"""Calls of the model whose prompt is measured: the prompt of an agent of the preset memory, or of the same name in the
configuration, and a model of the configuration's providers.

A call that fails for a moment is repeated; one that cannot succeed ends the command.

Before: live.py, judge.py. After: connectors/models, connectors/configuration.
"""

import asyncio
import os
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from loomlog.connectors.configuration.agent_block import AgentBlock
from loomlog.connectors.configuration.findings import did_you_mean
from loomlog.connectors.configuration.memory_block import PLACEHOLDER
from loomlog.connectors.configuration.model import Configuration
from loomlog.connectors.configuration.providers import Provider, build_providers, usable_provider_ids
from loomlog.connectors.configuration.resolve import UnresolvedAgent, resolve_agent
from loomlog.connectors.configuration.routing import collect_patterns
from loomlog.connectors.errors import ConnectorError, Transient
from loomlog.connectors.models.catalog import build_model
from loomlog.connectors.models.pricing import Price, cost_micros
from loomlog.connectors.protocols import Model, ModelRequest, Reply, SystemBlock
from loomlog.schemas.conversation import Message, TextBlock
from loomlog.schemas.generated.values import Sampling, Usage
from loomlog.services.cli.errors import CliError, UsageError
from loomlog.services.families.memory.commands.evaluation.options import load_files

EFFORTS = ("low", "medium", "high")
ATTEMPTS = 3
FIRST_DELAY_S, DELAY_MAX_S = 2.0, 60.0
PARALLEL = 4
"""Calls at once."""
ONTOLOGY = "ontology"
TERMS_TITLE = "Types of things in use: "
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """Which model is asked, as on the command line; empty: as the agent would be."""

    provider: str = ""
    model: str = ""
    effort: str = ""
    max_tokens: int = 0
    timeout_s: float = 300.0
    """Longest call."""


@dataclass(slots=True, kw_only=True)
class PromptedModel:
    """A model with a prompt. `usage` adds up."""

    model: Model
    name: str
    """Name of the model at its provider."""
    prompt: str
    effort: str
    max_tokens: int
    sampling: Sampling | None
    timeout_s: float
    price: Price | None
    currency: str
    usage: Usage = field(default_factory=Usage)
    calls: int = 0

    @property
    def full_name(self) -> str:
        return f"{self.model.provider}/{self.name}"

    @property
    def prompt_sha256(self) -> str:
        return sha256(self.prompt.encode()).hexdigest()

    @property
    def cost_micros(self) -> int | None:
        return None if self.price is None else cost_micros(self.price, self.usage)

    async def ask(self, text: str) -> str:
        """Return the answer to a text. Raises Transient after some attempts, or Permanent."""
        self.calls += 1
        request = ModelRequest(
            call_id=f"memory-eval-{uuid.uuid4()}",
            model=self.name,
            system=(SystemBlock(text=self.prompt, cacheable=True),),
            messages=(Message(role="user", blocks=(TextBlock(text=text),)),),
            max_tokens=self.max_tokens,
            effort=self.effort,
            sampling=self.sampling,
        )
        delay_s = FIRST_DELAY_S
        for attempt in range(1, ATTEMPTS + 1):
            try:
                reply = await self._reply(request)
            except Transient as error:
                if attempt == ATTEMPTS:
                    raise
                await asyncio.sleep(min(delay_s if error.retry_after_s is None else error.retry_after_s, DELAY_MAX_S))
                delay_s *= 2
            else:
                self.usage = _added(self.usage, reply.usage)
                return reply.text
        raise AssertionError("unreachable")

    async def _reply(self, request: ModelRequest) -> Reply:
        try:
            async with asyncio.timeout(self.timeout_s):
                async for item in self.model.stream(request):
                    if isinstance(item, Reply):
                        return item
        except TimeoutError as error:
            message = f"{self.full_name}: no whole answer within {self.timeout_s:g} s (--timeout)"
            raise Transient(message, kind="timeout") from error
        raise Transient(f"{self.full_name}: the answer broke off", kind="broken_off")

    def to_json(self) -> dict[str, Any]:
        """Return what is reported of the model, its prompt and the cost."""
        return {
            "model": self.full_name,
            "effort": self.effort or None,
            "prompt_sha256": self.prompt_sha256,
            "calls": self.calls,
            "usage": self.usage.to_avro(),
            "cost_micros": self.cost_micros,
            "currency": self.currency if self.price is not None else None,
        }


async def open_prompted_model(
    agent: str, choice: ModelChoice, paths: Sequence[Path] | None, *, terms: Sequence[str] = ()
) -> PromptedModel:
    """Return the model of an agent, or the one that is chosen. `terms`: what {{memory:ontology}} of the prompt stands
    for; without that placeholder they follow the prompt. Raises UsageError, CliError.
    """
    loaded = load_files(paths, with_preset=True)
    configuration = loaded.configuration
    providers = build_providers(configuration, loaded.settings, os.environ)
    block = _chosen_block(configuration.agents[agent], choice, providers)
    usable = usable_provider_ids(providers.values())
    listings = {} if choice.provider else await _listings(configuration, providers)
    resolved = resolve_agent(configuration, agent, usable=usable, listings=listings, block=block)
    if isinstance(resolved, UnresolvedAgent):
        raise CliError(f"{resolved.message}. Name one with --provider and --model, or set its key.")
    return PromptedModel(
        model=build_model(providers[resolved.provider]),
        name=resolved.model,
        prompt=with_terms(resolved.system_prompt, terms),
        effort=choice.effort or resolved.effort,
        max_tokens=choice.max_tokens or resolved.max_tokens,
        sampling=resolved.sampling,
        timeout_s=choice.timeout_s,
        price=resolved.price,
        currency=resolved.currency,
    )


def with_terms(prompt: str, terms: Sequence[str]) -> str:
    """Return a prompt with types of things, and without what else a run would put into it."""
    text = TERMS_TITLE + ", ".join(terms) if terms else ""
    names = [name for slash, name in PLACEHOLDER.findall(prompt) if not slash]
    filled = PLACEHOLDER.sub(lambda one: one[0][1:] if one[1] else text if one[2] == ONTOLOGY else "", prompt)
    return f"{filled}\n\n{text}" if text and ONTOLOGY not in names else filled


async def gather_limited(items: Sequence[Item], work: Callable[[Item], Awaitable[Result]]) -> list[Result]:
    """Return the results of a call for each item, PARALLEL of them at once, in their order."""
    slots = asyncio.Semaphore(PARALLEL)

    async def one(item: Item) -> Result:
        async with slots:
            return await work(item)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(item)) for item in items]
    return [task.result() for task in tasks]


async def ask_or_reason(model: PromptedModel, text: str) -> tuple[str | None, str]:
    """Return the answer, or None and why there is none after some attempts. Raises Permanent."""
    try:
        return await model.ask(text), ""
    except Transient as error:
        return None, str(error)


def _chosen_block(agent: AgentBlock, choice: ModelChoice, providers: dict[str, Provider]) -> AgentBlock:
    if choice.effort and choice.effort not in EFFORTS:
        raise UsageError(f"--effort is {choice.effort[:60]!r}; expected one of {', '.join(EFFORTS)}.")
    if not choice.provider and not choice.model:
        return agent
    if choice.provider and choice.provider not in providers:
        hint = did_you_mean(choice.provider, providers)
        raise UsageError(f"--provider: there is no provider {choice.provider[:60]}{hint}.")
    if choice.provider and not choice.model:
        raise UsageError("--provider needs --model, the name of the model there.")
    if choice.provider and not providers[choice.provider].is_usable:
        raise CliError(f"{choice.provider} cannot be used: {providers[choice.provider].unusable_reason}.")
    return replace(agent, provider=choice.provider or None, model=choice.model, tier=None)


async def _listings(configuration: Configuration, providers: dict[str, Provider]) -> dict[str, Sequence[str]]:
    """Return what each provider lists whose models are chosen by patterns; one that does not answer lists nothing."""
    names = sorted({name for name, _ in collect_patterns(configuration) if name in providers})
    listings: dict[str, Sequence[str]] = {}
    for name in names:
        if not providers[name].is_usable:
            continue
        model = build_model(providers[name])
        try:
            listings[name] = await model.list_models()
        except ConnectorError:
            listings[name] = ()
        finally:
            await model.close()
    return listings


def _added(a: Usage, b: Usage) -> Usage:
    return Usage(**{name: getattr(a, name) + getattr(b, name) for name in Usage.__struct_fields__})
