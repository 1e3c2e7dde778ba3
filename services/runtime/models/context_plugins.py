"""Context plugins of the configuration: they rewrite, in order, the conversation that is sent to a provider.

There is one, `redact`. It works on a copy, once per turn: the log keeps what services/runtime/content/redaction.py let
through, the provider receives it without secrets.

    known      values of the environment whose names mark them as secrets          [redacted:NAME]
    run        credentials that came with the run's request                        [redacted:credential]
    patterns   what looks like a key, a token or a password assignment             [redacted:...]

Signed reasoning stays as it is, because its signer refuses a changed one; so do the arguments of tool calls, unless
`redact_tool_input` is set. A bare hash (40 hex digits) is no secret: commits have it too.

Before: model_calls.py has the conversation in plaintext. After: the provider's driver.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from loomlog.connectors.crypto.secret_patterns import clean_json, redact_secrets
from loomlog.connectors.errors import ConnectorError, Permanent, Transient
from loomlog.connectors.tools.references import mask_credentials
from loomlog.schemas.conversation import Block, ImageBlock, Message, TextBlock, ToolResultBlock, ToolUseBlock
from loomlog.schemas.records import Value, replace
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.runtime.content.redaction import Redaction
from loomlog.services.runtime.content.run_credentials import Credentials

REDACT = "redact"
MESSAGES_PER_YIELD = 8
"""Messages after which other runs of the process get their turn: 75,000 characters take 3 ms."""
SECRET_SUFFIXES = ("_KEY", "_TOKEN", "_SECRET", "_AUTH", "_PASSWORD", "_CREDENTIAL", "_CREDENTIALS", "_DSN")
"""Suffixes of environment variables whose values are secrets (operations parity 1.4)."""
SECRET_CHARACTERS_MIN = 8


class OutboundConversation(Value, frozen=True, kw_only=True):
    """The system texts and messages that are about to be sent."""

    system: tuple[str, ...]
    messages: tuple[Message, ...]


class ContextPlugin(Protocol):
    """One plugin. Raises ConnectorError."""

    name: str

    async def apply(self, outbound: OutboundConversation, facts: RunFacts, tenant: str) -> OutboundConversation: ...


class ContextPlugins:
    """The configured plugins, applied in order."""

    def __init__(self, plugins: tuple[ContextPlugin, ...] = ()) -> None:
        self._plugins = plugins

    async def apply(self, outbound: OutboundConversation, facts: RunFacts, tenant: str) -> OutboundConversation:
        """Apply the plugins. Raises Transient or Permanent (`context transform: ...`): unredacted text is not sent."""
        for plugin in self._plugins:
            try:
                outbound = await plugin.apply(outbound, facts, tenant)
            except Transient as error:
                raise Transient(f"context transform: {plugin.name}: {error}", kind=error.kind) from error
            except ConnectorError as error:
                raise Permanent(f"context transform: {plugin.name}: {error}", kind=error.kind) from error
        return outbound


class RedactPlugin:
    """The plugin `redact`. `secrets` maps names to values."""

    name = REDACT

    def __init__(
        self, secrets: Mapping[str, str], *, credentials: Credentials, redact_tool_input: bool = False
    ) -> None:
        self._redaction = Redaction(secrets)
        self._credentials = credentials
        self._redact_tool_input = redact_tool_input

    async def apply(self, outbound: OutboundConversation, facts: RunFacts, tenant: str) -> OutboundConversation:
        values = tuple((await self._credentials.load_values(facts, tenant)).values())

        def clean(text: str) -> str:
            return self._mask(text, values)

        messages: list[Message] = []
        for message in outbound.messages:
            messages.append(self._mask_message(message, clean))
            if len(messages) % MESSAGES_PER_YIELD == 0:
                await asyncio.sleep(0)
        return OutboundConversation(system=tuple(map(clean, outbound.system)), messages=tuple(messages))

    def _mask(self, text: str, credentials: tuple[str, ...]) -> str:
        if credentials:
            text = mask_credentials(credentials, text)
        return redact_secrets(self._redaction.mask_text(text))

    def _mask_message(self, message: Message, mask: Callable[[str], str]) -> Message:
        blocks = tuple(self._mask_block(block, mask) for block in message.blocks)
        reasoning = message.reasoning if message.reasoning_signature else mask(message.reasoning)
        if reasoning == message.reasoning and all(new is old for new, old in zip(blocks, message.blocks, strict=True)):
            return message
        return replace(message, blocks=blocks, reasoning=reasoning)

    def _mask_block(self, block: Block, mask: Callable[[str], str]) -> Block:
        match block:
            case TextBlock() | ToolResultBlock():
                text = mask(block.text)
                return block if text == block.text else replace(block, text=text)
            case ToolUseBlock() if self._redact_tool_input:
                masked_input = clean_json(block.input, mask)
                return block if masked_input == block.input else replace(block, input=masked_input)
            case ToolUseBlock() | ImageBlock():
                return block


def collect_secrets(environ: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    """Return the values of environment variables named like secrets, and those the configuration knows, by name."""
    named = {
        name: value.strip()
        for name, value in environ.items()
        if name.endswith(SECRET_SUFFIXES) and len(value.strip()) >= SECRET_CHARACTERS_MIN
    }
    return {**named, **known}
