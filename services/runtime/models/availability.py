"""Model availability: publishes the outcome of calls to every process, and finds other models for a run.

A mark is made when a call has failed for good, that is when no retry follows: the first 429 of a busy second must not
exclude a model for every run. It applies in this process at once and is appended in the background, never in the path
of a call. Only changes are written: a healthy call writes nothing.

No marks are made for providers without an operator key: they are not probed, so a mark would never be removed. Each run
finds out itself, with the key it brought.

Before: model_calls.py, with the outcome of a call. After: services/stream/global_tables/providers.py, in every process.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from loomlog.connectors.errors import UnknownOutcome
from loomlog.connectors.protocols import LogAppender, ProducerRecord
from loomlog.schemas.codec import Codec
from loomlog.schemas.generated.stream_records import ModelMarked
from loomlog.schemas.records import replace
from loomlog.services.core.availability import RATE_LIMITED, AvailabilityTable, failure_mark, success_mark
from loomlog.services.core.run.commands import Alternative, ModelFailed
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import AwaitingModel
from loomlog.services.core.run.turns.fallback import QUOTA_EXHAUSTED
from loomlog.services.core.run.turns.model_result import retry_wait_ms
from loomlog.services.families.ports.credentials import CredentialUser, CredentialValues
from loomlog.services.runtime.models.provider_keys import NO_KEY, ProviderKey
from loomlog.services.stream.global_tables.global_table import PARTITION, GlobalTable

log = logging.getLogger("loomlog.runtime")

KEY_FAILURES = frozenset({"rate_limited", QUOTA_EXHAUSTED, "unauthorised", "forbidden", "refused"})
"""Kinds of failures that concern the key of a call: 429, an exhausted quota, 401, 403, no key."""
RETRY_S = 1.0
"""Seconds between attempts to append marks while the broker is unavailable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTraits:
    """Properties of the models of one provider that a fallback needs.

    `supports_vision`: whether a model takes images. `non_thinking_sibling`: the model to call in place of one that
    needs reasoning which is missing; the same name when it needs none.
    """

    supports_vision: Callable[[str], bool]
    non_thinking_sibling: Callable[[str], str] = str
    has_prompt_cache: bool = False
    api_key_env: str = ""
    has_key: bool = True
    """As in model_calls.RuntimeProvider."""

    @property
    def requires_run_key(self) -> bool:
        """Whether only runs with a key of their own can use the provider."""
        return bool(self.api_key_env) and not self.has_key


class AvailabilityTracker:
    """Tracks the availability of models; one per process. `traits` are those of the providers this process can call."""

    def __init__(
        self,
        global_table: GlobalTable[AvailabilityTable],
        traits: Mapping[str, ModelTraits],
        *,
        codec: Codec,
        appender: LogAppender,
        clock_ms: Callable[[], int],
        name: str,
    ) -> None:
        self._global_table = global_table
        self._traits = traits
        self._codec = codec
        self._appender = appender
        self._clock_ms = clock_ms
        self._name = name
        self.stored: CredentialValues | None = None
        """The stored credentials, once they are read."""
        self._pending_marks: dict[tuple[str, str, bool], ModelMarked] = {}
        """Latest mark by provider, model and whether it is a rate limit."""
        self._has_pending = asyncio.Event()

    def on_success(self, provider: str, model: str, *, key: ProviderKey = NO_KEY) -> None:
        """Record that a call made with that key was answered."""
        if self._requires_run_key(provider):
            return
        mark = success_mark(
            self._global_table.table, provider, model, at_ms=self._clock_ms(), by=self._name, own_key=not key.is_shared
        )
        self._publish(mark)

    def on_failure(
        self, state: AwaitingModel, order: ModelFailed, *, tenant: str = "", key: ProviderKey = NO_KEY
    ) -> ModelFailed:
        """Record a failed call made with that key; return the failure, with alternatives when no retry will follow.

        A rate limit, an empty balance or a refusal with a key that is not shared proves nothing about the model.
        """
        if retry_wait_ms(state, order) is not None:
            return order
        if (order.kind in KEY_FAILURES and not key.is_shared) or self._requires_run_key(state.provider):
            return self._with_alternatives(state, order, tenant)
        definition = state.facts.definition
        mark = failure_mark(
            self._global_table.table,
            state.provider,
            state.model,
            order.kind,
            cooldown_ms=definition.rate_limit_cooldown_ms,
            at_ms=order.at_ms,
            by=self._name,
        )
        self._publish(mark)
        return self._with_alternatives(state, order, tenant)

    def on_saturated(self, state: AwaitingModel, order: ModelFailed, *, tenant: str = "") -> ModelFailed:
        """Return the failure as from `on_failure`, with alternatives of other providers only: this one had no free
        slot, which proves nothing about its model.
        """
        if retry_wait_ms(state, order) is not None:
            return order
        failure = self._with_alternatives(state, order, tenant)
        elsewhere = [one for one in failure.alternatives if one.choice.provider != state.provider]
        return replace(failure, alternatives=tuple(elsewhere))

    def _requires_run_key(self, provider: str) -> bool:
        traits = self._traits.get(provider)
        return traits is not None and traits.requires_run_key

    def _with_alternatives(self, state: AwaitingModel, order: ModelFailed, tenant: str) -> ModelFailed:
        left = self._traits.get(state.provider)
        return replace(
            order,
            alternatives=self._alternatives(state, order.at_ms, tenant),
            leaves_cache=bool(left and left.has_prompt_cache),
        )

    async def run(self) -> None:
        """Append pending marks until cancelled."""
        while True:
            await self._has_pending.wait()
            self._has_pending.clear()
            marks, self._pending_marks = self._pending_marks, {}
            records = [ProducerRecord(key=None, value=self._codec.encode(mark)) for mark in marks.values()]
            try:
                await self._appender.append(self._global_table.topic, PARTITION, records)
            except UnknownOutcome as error:
                log.warning("marks of models are appended again: %s", error)
                self._pending_marks = {**marks, **self._pending_marks}
                self._has_pending.set()
                await asyncio.sleep(RETRY_S)

    def _alternatives(self, state: AwaitingModel, now_ms: int, tenant: str) -> tuple[Alternative, ...]:
        if not state.facts.definition.fallback_on_error:
            return ()
        alternatives = []
        for choice in state.facts.definition.candidates:
            traits = self._traits.get(choice.provider)
            if traits is None:
                continue
            own_key = self._has_own_key(state.facts, tenant, traits.api_key_env)
            may_use_operators = traits.has_key and not state.facts.options.operator_key_restricted
            if traits.api_key_env and not own_key and not may_use_operators:
                continue
            standing = self._global_table.table.availability(choice.provider, choice.model, now_ms, own_key=own_key)
            if traits.requires_run_key or standing.is_available:
                sibling = traits.non_thinking_sibling(choice.model)
                alternatives.append(
                    Alternative(
                        choice=choice,
                        sees_images=traits.supports_vision(choice.model),
                        sibling=sibling if sibling != choice.model else "",
                    )
                )
        return tuple(alternatives)

    def _has_own_key(self, facts: RunFacts, tenant: str, name: str) -> bool:
        """Return whether a key of that name came with the run, or is stored for its agent, user or tenant."""
        if not name or name in facts.options.credentials:
            return bool(name)
        user = CredentialUser(tenant=tenant, user=facts.user_id, agent=facts.definition.name)
        return self.stored is not None and self.stored.has(name, user)

    def _publish(self, mark: ModelMarked | None) -> None:
        if mark is None:
            return
        log.info("%s/%s is %s: %s", mark.provider, mark.model, mark.mark, mark.reason or "a call was answered")
        self._global_table.apply_locally(mark)
        self._pending_marks[mark.provider, mark.model, mark.mark == RATE_LIMITED] = mark
        self._has_pending.set()
