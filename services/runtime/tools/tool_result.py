"""What becomes of a result on its way to the log: masked, bounded, sealed, in the blob store when it is long.

Before: tool_calls.py. After: decide with ToolCompleted.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.protocols import Blobs, ToolResult
from loomlog.schemas.generated.values import HookAct
from loomlog.schemas.making import maker
from loomlog.services.core.hooks import HookedResult
from loomlog.services.core.run.commands import ToolCompleted
from loomlog.services.core.run.react import CallTool
from loomlog.services.runtime.content.encryption import Clear
from loomlog.services.runtime.content.payloads import inline_or_blob, storable
from loomlog.services.runtime.content.redaction import without
from loomlog.services.runtime.content.run_credentials import NOTHING
from loomlog.services.stream.encryption.subject_keys import Sealer

MAX_RESULT_CHARACTERS = 4 * 1024 * 1024
"""A longer result is cut; the built-in tools stay far below, this bounds foreign ones."""
_tool_done = maker(ToolCompleted)  # at each call; see schemas/making.py
DENIED = "denied"
"""Outcome of a call that a hook refused."""


@dataclass(slots=True, kw_only=True)
class Returned:
    """What a call gave, after the hooks; `acts` are in clear."""

    result: ToolResult
    outcome: str
    acts: Sequence[HookAct] = ()
    duration_ms: int = 0


class ToolResults:
    """`mask` hides secrets in what goes to the log, `mask_results` in what tools give (redaction.py); left out it is
    the same."""

    def __init__(
        self,
        *,
        blobs: Blobs,
        clock_ms: Callable[[], int],
        mask: Callable[[str], str],
        mask_results: Callable[[str], str] | None = None,
    ) -> None:
        self._blobs = blobs
        self._clock_ms = clock_ms
        self._mask = mask
        self._mask_result = mask if mask_results is None else mask_results

    async def done(self, effect: CallTool, called: Returned, sealer: Sealer | Clear) -> ToolCompleted:
        """The order for a result: masked, bounded, sealed, and in the blob store when it is long."""
        found, outcome = called.result, called.outcome
        is_error = found.is_error
        try:
            inline, blob = await inline_or_blob(sealer.text(storable(self.kept(found.text))), self._blobs)
        except ConnectorError as error:
            inline, blob = sealer.text(f"{effect.name} returned, but its result could not be stored: {error}"), None
            is_error, outcome = True, "error"
        return _tool_done(
            at_ms=self._clock_ms(),
            turn=effect.turn,
            index=effect.index,
            attempt=effect.attempt,
            text=inline,
            text_blob=blob,
            is_error=is_error,
            outcome=outcome,
            duration_ms=called.duration_ms,
            asks_compaction=found.asks_compaction,
            hook_acts=self.told(called.acts, sealer) if called.acts else (),
        )

    def told(self, acts: Sequence[HookAct], sealer: Sealer | Clear) -> tuple[HookAct, ...]:
        """What hooks did, as the log may hold it."""
        return tuple(
            replace(
                act,
                input=sealer.text(storable(self._mask(act.input))),
                url=sealer.short(storable(self._mask(act.url))),
                hosts_added=tuple(map(storable, act.hosts_added)),
            )
            for act in acts
        )

    def kept(self, text: str, credentials: Mapping[str, str] = NOTHING) -> str:
        """What of a result goes to the log, and to hooks; the credentials are those of its run."""
        text = self._mask_result(without(credentials.values(), text) if credentials else text)
        if len(text) > MAX_RESULT_CHARACTERS:
            text = text[:MAX_RESULT_CHARACTERS] + f"\n[cut after {MAX_RESULT_CHARACTERS} characters]"
        return text

    def masked(self, text: str) -> str:
        """Without secrets, as the log may hold it."""
        return storable(self._mask(text))


def error_result(text: str) -> Returned:
    """A result that says what went wrong."""
    return Returned(result=ToolResult(text=text, is_error=True), outcome="error")


def as_result(result: HookedResult) -> ToolResult:
    """What hooks left of a result."""
    return ToolResult(text=result.text, is_error=result.is_error)
