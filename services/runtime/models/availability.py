"""What calls show of models, told to every process; and which other models a run could go to now.

A mark is made when a call has failed for good, that is when no retry of it follows: the first 429 of a busy second
must not shut a model for everybody. It counts here at once and is appended in the background, never on the way of a
call. Only changes are written: a healthy call writes nothing.

Of providers for which the operator has no key nothing is told: nobody probes them, so nobody would take a mark back.
Each run finds out itself, with the key it brought.

Before: model_calls.py, with what came back. After: services/stream/global_tables/providers.py, in every process.
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
from loomlog.services.core.availability import RATE_LIMITED, failure_mark, success_mark
from loomlog.services.core.run.commands import Alternative, ModelFailed
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import AwaitingModel
from loomlog.services.core.run.turns.model_result import retry_wait_ms
from loomlog.services.runtime.models.provider_keys import NO_KEY, ProviderKey
from loomlog.services.stream.global_tables.providers import PARTITION, ProviderGlobalTable

log = logging.getLogger("loomlog.runtime")

KEY_FAILURES = frozenset({"rate_limited", "unauthorised", "forbidden", "refused"})
"""Kinds of failures that are about the key of a call: 429 (an exhausted quota too), 401, 403, 402."""
RETRY_S = 1.0
"""Between tries to append marks while the broker is away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTraits:
    """What a fallback has to know of the models of one provider.

    `sees`: whether a model takes images. `sibling`: the one to ask in place of a model that needs reasoning which is
    not there; the same name when it needs none.
    """

    supports_vision: Callable[[str], bool]
    non_thinking_sibling: Callable[[str], str] = str
    has_prompt_cache: bool = False
    api_key_env: str = ""
    has_key: bool = True
    """As in model_calls.Provider."""

    @property
    def requires_run_key(self) -> bool:
        """Only runs with a key of their own are there."""
        return bool(self.api_key_env) and not self.has_key


class AvailabilityTracker:
    """One for each process. `traits` are those of the providers this process can call."""

    def __init__(
        self,
        global_table: ProviderGlobalTable,
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
        self._pending_marks: dict[tuple[str, str, bool], ModelMarked] = {}
        """The latest mark of each model and state; the second state is the rate limit."""
        self._has_pending = asyncio.Event()

    def on_success(self, provider: str, model: str, *, key: ProviderKey = NO_KEY) -> None:
        """A call made with that key was answered."""
        if self._requires_run_key(provider):
            return
        mark = success_mark(
            self._global_table.matrix, provider, model, at_ms=self._clock_ms(), by=self._name, own_key=not key.is_shared
        )
        self._publish(mark)

    def on_failure(self, state: AwaitingModel, order: ModelFailed, *, key: ProviderKey = NO_KEY) -> ModelFailed:
        """A call made with that key failed; the order with what else could be called, when no retry will follow.

        A rate limit, an empty balance or a refusal met with a key that is not everybody's says nothing of the model.
        """
        if retry_wait_ms(state, order) is not None:
            return order
        if (order.kind in KEY_FAILURES and not key.is_shared) or self._requires_run_key(state.provider):
            return self._with_alternatives(state, order)
        definition = state.facts.definition
        mark = failure_mark(
            self._global_table.matrix,
            state.provider,
            state.model,
            order.kind,
            cooldown_ms=definition.rate_limit_cooldown_ms,
            at_ms=order.at_ms,
            by=self._name,
        )
        self._publish(mark)
        return self._with_alternatives(state, order)

    def on_saturated(self, state: AwaitingModel, order: ModelFailed) -> ModelFailed:
        """No place of the provider was free for a call, which says nothing of its model; the order as from `erred`,
        with what other providers have."""
        if retry_wait_ms(state, order) is not None:
            return order
        found = self._with_alternatives(state, order)
        elsewhere = [one for one in found.alternatives if one.choice.provider != state.provider]
        return replace(found, alternatives=tuple(elsewhere))

    def _requires_run_key(self, provider: str) -> bool:
        traits = self._traits.get(provider)
        return traits is not None and traits.requires_run_key

    def _with_alternatives(self, state: AwaitingModel, order: ModelFailed) -> ModelFailed:
        left = self._traits.get(state.provider)
        return replace(
            order,
            alternatives=self._alternatives(state, order.at_ms),
            leaves_cache=bool(left and left.has_prompt_cache),
        )

    async def run(self) -> None:
        """Appends what was marked, until cancelled."""
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

    def _alternatives(self, state: AwaitingModel, now_ms: int) -> tuple[Alternative, ...]:
        if not state.facts.definition.fallback_on_error:
            return ()
        found = []
        for choice in state.facts.definition.candidates:
            traits = self._traits.get(choice.provider)
            if traits is None or not _has_key(state.facts, traits):
                continue
            own_key = traits.api_key_env in state.facts.options.credentials
            standing = self._global_table.matrix.availability(choice.provider, choice.model, now_ms, own_key=own_key)
            if traits.requires_run_key or standing.is_available:
                sibling = traits.non_thinking_sibling(choice.model)
                found.append(
                    Alternative(
                        choice=choice,
                        sees_images=traits.supports_vision(choice.model),
                        sibling=sibling if sibling != choice.model else "",
                    )
                )
        return tuple(found)

    def _publish(self, mark: ModelMarked | None) -> None:
        if mark is None:
            return
        log.info("%s/%s is %s: %s", mark.provider, mark.model, mark.mark, mark.reason or "a call was answered")
        self._global_table.publish_locally(mark)
        self._pending_marks[mark.provider, mark.model, mark.mark == RATE_LIMITED] = mark
        self._has_pending.set()


def _has_key(facts: RunFacts, traits: ModelTraits) -> bool:
    """A run goes only where it has a key, where it may use the operator's and there is one, or where none is needed."""
    if not traits.api_key_env or traits.api_key_env in facts.options.credentials:
        return True
    return traits.has_key and not facts.options.operator_key_restricted
