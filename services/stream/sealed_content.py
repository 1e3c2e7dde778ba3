"""Which parts of a request are user content. What is not named here stays readable: ids, names, roles, limits, reasons.

Before: a client's request in services/commands, a command of a microservice in services/runtime. After: the log.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from connectors.protocols import LogRecord
from connectors.sealing import has_tokens
from schemas.codec import Codec, Undecodable
from schemas.run_commands import Command, ForkRun, PostInput, ResolveCall, ResolveInterruption, StartRun
from schemas.values import ContentBlock, Segment
from services.stream.subject_keys import Seal, SubjectKeys

WithContent = StartRun | ForkRun | PostInput | ResolveCall | ResolveInterruption
"""Commands that bring content. Results that are handed over were sealed by whoever got them; an import keeps the bytes
it had, because the hash of its history is over them."""


def sealed_segments(segments: Iterable[Segment], seal: Seal) -> tuple[Segment, ...]:
    """Texts and images; a block whose payload is in the blob store already stays as it is."""
    return tuple(replace(one, content=tuple(_sealed_block(block, seal) for block in one.content)) for one in segments)


def sealed_values(values: Mapping[str, str], seal: Seal) -> dict[str, str]:
    return {name: seal(value, False) for name, value in values.items()}


def sealed_untrusted(values: Mapping[str, str], seal: Seal) -> dict[str, str]:
    return {name: seal(value, True) for name, value in values.items()}


def sealed_command(command: WithContent, seal: Seal) -> WithContent:
    """The command without a word in clear."""
    match command:
        case StartRun():
            return replace(
                command,
                prompt=seal(command.prompt, False),
                segments=sealed_segments(command.segments, seal),
                metadata=sealed_values(command.metadata, seal),
                payload_metadata=sealed_untrusted(command.payload_metadata, seal),
                parent_context=sealed_values(command.parent_context, seal),
            )
        case ForkRun():
            return replace(
                command, prompt=seal(command.prompt, False), segments=sealed_segments(command.segments, seal)
            )
        case PostInput():
            return replace(command, text=seal(command.text, False))
        case ResolveCall():
            return replace(command, result=seal(command.result, False))
        case ResolveInterruption():
            return replace(command, answer=seal(command.answer, False))


def texts_in(command: Command) -> list[str]:
    """The content of a command; none when it brings none."""
    match command:
        case StartRun():
            said = [command.prompt, *_texts(command.segments)]
            return [*said, *command.metadata.values(), *command.payload_metadata.values()]
        case ForkRun():
            return [command.prompt, *_texts(command.segments)]
        case PostInput():
            return [command.text]
        case ResolveCall():
            return [command.result]
        case ResolveInterruption():
            return [command.answer]
        case _:
            return []


def letters_value(keys: SubjectKeys, codec: Codec, commands_topic: str) -> Callable[[LogRecord], bytes | None]:
    """The value of a record as a dead letter may hold it, which is kept for a year: without a word in clear.

    A command in clear is sealed when it says whose it is and that subject has a key. Otherwise, and when nobody can
    read what it says, it stays in its topic alone, which keeps it for 14 days; the letter says where it lies.
    """

    def kept(record: LogRecord) -> bytes | None:
        if record.topic != commands_topic or record.value is None:
            return record.value
        try:
            command = codec.decode(record.value).record
        except Undecodable:
            return None
        in_clear = [text for text in texts_in(command) if text and not has_tokens(text)]
        if not in_clear:
            return record.value
        if not isinstance(command, StartRun):
            return None
        tenant = command.envelope.tenant
        sealer = keys.at_hand(tenant, command.user_id)
        if sealer is None:
            return None
        return codec.encode(sealed_command(command, keys.unsealed(tenant, command.user_id, sealer)))

    return kept


def _sealed_block(block: ContentBlock, seal: Seal) -> ContentBlock:
    # As in the core: what is not known to be trusted is not.
    return replace(block, text=seal(block.text, block.type != "trusted-text"), data=seal(block.data, False))


def _texts(segments: Iterable[Segment]) -> list[str]:
    return [text for segment in segments for block in segment.content for text in (block.text, block.data)]
