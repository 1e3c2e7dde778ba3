"""Results of tools on their way to the log: masked, bounded, encrypted, in the blob store when they are long.

Before: tool_calls.py. After: decide with ToolCompleted.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.protocols import Blobs, ToolResult
from loomlog.connectors.tools.references import mask_credentials
from loomlog.schemas.generated.values import BlobRef, ChannelUse, HookAct
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import ToolCompleted
from loomlog.services.core.run.react import CallTool
from loomlog.services.core.run.tools.result_size import shorten
from loomlog.services.families.ports.tool_hooks import HookedResult
from loomlog.services.runtime.content.encryption import NoCipher
from loomlog.services.runtime.content.payloads import inline_or_blob, make_storable
from loomlog.services.runtime.content.run_credentials import NO_VALUES
from loomlog.services.runtime.tools.channel_previews import with_previews
from loomlog.services.stream.encryption.subject_keys import ContentCipher

MAX_RESULT_CHARACTERS = 4 * 1024 * 1024
"""Characters of a result; a longer one is cut. The built-in tools stay far below, this bounds third-party ones."""
DENIED = "denied"
"""Outcome of a call that a hook refused."""


@dataclass(slots=True, kw_only=True)
class ToolCallResult:
    """Result of a call after the hooks; `acts` are in plaintext."""

    result: ToolResult
    outcome: str
    acts: Sequence[HookAct] = ()
    duration_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultLimit:
    """Most bytes of a result, 0: any number; and how the rest of a longer one is read
    (services/core/run/tools/result_size.py).
    """

    bytes_max: int = 0
    hint: Callable[[], str] = str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredText:
    """A result in the form the log stores; `whole` is all of it, when the text is a part."""

    text: str
    blob: BlobRef | None
    whole: BlobRef | None = None


class ToolResultBuilder:
    """Builds tool results. `mask` hides secrets in what goes to the log, `mask_results` in the output of tools
    (services/runtime/content/redaction.py); by default `mask`.
    """

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
        self._mask_tool_output = mask if mask_results is None else mask_results

    async def build(
        self, effect: CallTool, call_result: ToolCallResult, cipher: ContentCipher | NoCipher, limit: ResultLimit
    ) -> ToolCompleted:
        """Return the command for a result: masked, bounded, encrypted, and in the blob store when it is long."""
        try:
            return await self.build_stored(effect, call_result, cipher, limit)
        except ConnectorError as error:
            text = f"{effect.name} returned, but its result could not be stored: {error}"
            # Without its leases: what the model does not see goes back to its queue.
            unstored = replace(call_result.result, text=text, is_error=True, channels=(), leases=())
            call_result.result, call_result.outcome = unstored, "error"
            return await self.build_stored(effect, call_result, cipher, limit)

    async def build_stored(
        self, effect: CallTool, call_result: ToolCallResult, cipher: ContentCipher | NoCipher, limit: ResultLimit
    ) -> ToolCompleted:
        """Return the command for a result, as `build`. Raises ConnectorError when a long one cannot be stored."""
        result = call_result.result
        stored = await self.store(result.text, cipher, limit)
        return ToolCompleted(
            at_ms=self._clock_ms(),
            turn=effect.turn,
            index=effect.index,
            attempt=effect.attempt,
            text=stored.text,
            text_blob=stored.blob,
            whole_blob=stored.whole,
            is_error=result.is_error,
            outcome=call_result.outcome,
            duration_ms=call_result.duration_ms,
            asks_compaction=result.asks_compaction,
            positions=result.positions,
            skill_pin=result.skill_pin,
            channels=self._stored_uses(effect, result, cipher) if result.channels else (),
            leases=result.leases,
            hook_acts=self.encrypt_acts(call_result.acts, cipher) if call_result.acts else (),
        )

    async def store(self, text: str, cipher: ContentCipher | NoCipher, limit: ResultLimit) -> StoredText:
        """Return a result masked, cut to the limit, encrypted, and in the blob store when it is long; the whole of one
        that was cut is there too. Raises ConnectorError.
        """
        text = make_storable(self.mask_and_truncate(text))
        part = shorten(text, limit.bytes_max, limit.hint)
        inline, blob = await inline_or_blob(cipher.text(text if part is None else part), self._blobs)
        whole = None if part is None else await self._blobs.put(cipher.text(text).encode())
        return StoredText(text=inline, blob=blob, whole=whole)

    def _stored_uses(
        self, effect: CallTool, result: ToolResult, cipher: ContentCipher | NoCipher
    ) -> tuple[ChannelUse, ...]:
        """Return the messages of a call in the form the log stores, with their previews."""
        return tuple(
            [
                replace(use, preview=cipher.text(self.mask_text(use.preview)))
                for use in with_previews(result.channels, effect.input, result.text)
            ]
        )

    def encrypt_acts(self, acts: Sequence[HookAct], cipher: ContentCipher | NoCipher) -> tuple[HookAct, ...]:
        """Return the actions of hooks in the form the log stores."""
        return tuple(
            replace(
                act,
                input=cipher.text(make_storable(self._mask(act.input))),
                url=cipher.short_text(make_storable(self._mask(act.url))),
                hosts_added=tuple(map(make_storable, act.hosts_added)),
            )
            for act in acts
        )

    def mask_and_truncate(self, text: str, credentials: Mapping[str, str] = NO_VALUES) -> str:
        """Return a result as it goes to the log and to hooks; the credentials are those of its run."""
        text = self._mask_tool_output(mask_credentials(credentials.values(), text) if credentials else text)
        if len(text) > MAX_RESULT_CHARACTERS:
            text = text[:MAX_RESULT_CHARACTERS] + f"\n[cut after {MAX_RESULT_CHARACTERS} characters]"
        return text

    def mask_text(self, text: str) -> str:
        """Return the text without secrets, in the form the log stores."""
        return make_storable(self._mask(text))


def error_result(text: str) -> ToolCallResult:
    """Return a result that describes an error."""
    return ToolCallResult(result=ToolResult(text=text, is_error=True), outcome="error")


def to_tool_result(result: HookedResult) -> ToolResult:
    """Return the result that the hooks left, as a tool result."""
    return ToolResult(text=result.text, is_error=result.is_error)
