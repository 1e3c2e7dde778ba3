"""The parts of a request, and of events of a run, that are user content. Everything not named here stays readable: ids,
names, roles, limits, reasons.

Before: a client's request in services/application, a command of a microservice in services/runtime. After: the log.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

from loomlog.connectors.crypto.content_encryption import is_token
from loomlog.connectors.protocols import LogRecord
from loomlog.schemas.codec import Codec, Undecodable
from loomlog.schemas.generated.run_commands import (
    Command,
    ForkRun,
    ImportRun,
    PostInput,
    ResolveCall,
    ResolveInterruption,
    StartRun,
)
from loomlog.schemas.generated.run_events import (
    ChildrenPlanned,
    ContextCompacted,
    InputReceived,
    InterruptionClosed,
    InterruptionOpened,
    ModelReplied,
    PersonNotified,
    RunStarted,
    TurnCancelled,
)
from loomlog.schemas.generated.values import ContentBlock, DefinitionOverrides, RunOptions, Segment
from loomlog.schemas.records import Record, replace
from loomlog.services.stream.archive.bundle import blob_refs
from loomlog.services.stream.encryption.subject_keys import ContentEncryptor, SubjectKeys

PAYLOAD = "payload"
"""Key of a hook (connectors/definitions/triggers.py) with content."""
ContentRecord = StartRun | ForkRun | PostInput | ResolveCall | ResolveInterruption
"""Commands with content. Forwarded results were encrypted by their sender; an import keeps its bytes, because the hash
of its history covers them: with a key, a plaintext one is refused (is_in_clear).
"""


def encrypt_segments(segments: Iterable[Segment], seal: ContentEncryptor) -> tuple[Segment, ...]:
    """Encrypt texts and images; a block whose payload is in the blob store already is unchanged."""
    return tuple(replace(one, content=tuple(_encrypt_block(block, seal) for block in one.content)) for one in segments)


def encrypt_values(values: Mapping[str, str], seal: ContentEncryptor) -> dict[str, str]:
    return {name: seal(value, False) for name, value in values.items()}


def encrypt_untrusted(values: Mapping[str, str], seal: ContentEncryptor) -> dict[str, str]:
    return {name: seal(value, True) for name, value in values.items()}


def encrypt_hooks(hooks: Iterable[str], seal: ContentEncryptor) -> tuple[str, ...]:
    """Encrypt the payloads of hooks: each becomes the token of its JSON text. The rest of a hook stays readable."""
    return tuple(_encrypt_hook(text, seal) for text in hooks)


def _encrypt_hook(text: str, seal: ContentEncryptor) -> str:
    hook = _parse_hook(text)
    payload = hook.get(PAYLOAD)
    if payload is None:
        return text
    plaintext = payload if isinstance(payload, str) and is_token(payload) else orjson.dumps(payload).decode()
    return orjson.dumps({**hook, PAYLOAD: seal(plaintext, False)}).decode()


def _parse_hook(text: str) -> Mapping[str, Any]:
    """Return a hook of a run; nothing when it is none, and is refused at the end of the run."""
    try:
        hook = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return hook if isinstance(hook, dict) else {}


def encrypt_overrides(overrides: DefinitionOverrides | None, seal: ContentEncryptor) -> DefinitionOverrides | None:
    """Encrypt the system prompt that a fork brings; the rest of a definition is not content."""
    if overrides is None or not overrides.system_prompt:
        return overrides
    return replace(overrides, system_prompt=seal(overrides.system_prompt, False))


def encrypt_command(command: ContentRecord, seal: ContentEncryptor) -> ContentRecord:
    """Return the command with its content encrypted."""
    match command:
        case StartRun():
            return replace(
                command,
                prompt=seal(command.prompt, False),
                segments=encrypt_segments(command.segments, seal),
                options=replace(
                    command.options,
                    metadata=encrypt_values(command.options.metadata, seal),
                    payload_metadata=encrypt_untrusted(command.options.payload_metadata, seal),
                    parent_context=encrypt_values(command.options.parent_context, seal),
                    on_complete=encrypt_hooks(command.options.on_complete, seal),
                ),
            )
        case ForkRun():
            return replace(
                command,
                prompt=seal(command.prompt, False),
                segments=encrypt_segments(command.segments, seal),
                overrides=encrypt_overrides(command.overrides, seal),
            )
        case PostInput():
            return replace(command, text=seal(command.text, False))
        case ResolveCall():
            return replace(command, result=seal(command.result, False))
        case ResolveInterruption():
            by = seal(command.resolved_by, False) if command.resolved_by else ""
            return replace(command, answer=seal(command.answer, False), resolved_by=by)


def texts_of_command(command: Command) -> list[str]:
    """Return the content of a command; empty if it has none."""
    match command:
        case StartRun():
            return [command.prompt, *_segment_texts(command.segments), *_texts_of_options(command.options)]
        case ForkRun():
            prompt = command.overrides.system_prompt if command.overrides is not None else None
            return [command.prompt, *_segment_texts(command.segments), *([prompt] if prompt else [])]
        case PostInput():
            return [command.text]
        case ResolveCall():
            return [command.result]
        case ResolveInterruption():
            return [command.answer, command.resolved_by]
        case _:
            return []


def texts_of_event(event: Record) -> list[str]:
    """Return the texts of people and models in an event.

    Results of tools are left out: they are encrypted if the reply that requested them is, and older logs have plaintext
    texts of the core instead.
    """
    match event:
        case RunStarted():
            memory = [event.memory_context.text] if event.memory_context is not None else []
            return [*_segment_texts(event.segments), *_texts_of_options(event.options), *memory]
        case InputReceived() | TurnCancelled():
            return [event.text]
        case ModelReplied():
            texts = [event.text, event.reasoning, event.reasoning_signature]
            return [*texts, *(call.input for call in event.tool_calls)]
        case ContextCompacted():
            return [event.summary]
        case InterruptionOpened():
            return [event.question, event.context, *event.options]
        case InterruptionClosed():
            return [event.answer]
        case PersonNotified():
            return [event.message, event.context]
        case ChildrenPlanned():
            return [event.prompt, *(spawn.prompt for spawn in event.spawns)]
        case _:
            return []


def is_in_clear(event: Record) -> bool:
    """Whether its content is plaintext: no key encrypts it, so no erasure removes it."""
    return _has_plaintext(texts_of_event(event))


def payloads_of_event(event: Record) -> set[str]:
    """Return hashes of the payloads with content of an event, or results of its tools. The prompt and the script of an
    agent are not content: they are as readable as the rest of its definition.
    """
    texts = set(blob_refs(event.definition)) if isinstance(event, RunStarted) else set()
    return {ref.sha256 for ref in blob_refs(event) if ref not in texts}


def dead_letter_value(
    keys: SubjectKeys, codec: Codec, commands_topic: str, *, never: str = ""
) -> Callable[[LogRecord], bytes | None]:
    """Return the value of a record for a dead letter, which is kept for a year: without plaintext content.

    A plaintext start is encrypted if its subject has a key. Otherwise it stays in its topic alone, which keeps it for
    14 days, like every other plaintext command, a plaintext import, and records that cannot be decoded; the dead letter
    names the position. So does every record of the topic `never`: its content is not encrypted.
    """

    def kept(record: LogRecord) -> bytes | None:
        if record.topic == never:
            return None
        if record.topic != commands_topic or record.value is None:
            return record.value
        try:
            command = codec.decode(record.value).record
        except Undecodable:
            return None
        try:
            events = [codec.decode(value).record for value in command.events] if isinstance(command, ImportRun) else []
        except Undecodable:
            return None
        if not _has_plaintext(texts_of_command(command)) and not any(map(is_in_clear, events)):
            return record.value
        if not isinstance(command, StartRun):
            return None
        tenant = command.envelope.tenant
        sealer = keys.cached(tenant, command.user_id)
        if sealer is None:
            return None
        return codec.encode(encrypt_command(command, keys.decrypt_if_encrypted(tenant, command.user_id, sealer)))

    return kept


def _has_plaintext(texts: Iterable[str]) -> bool:
    """A token in a plaintext text encrypts nothing of the rest."""
    return any(text and not is_token(text) for text in texts)


def _encrypt_block(block: ContentBlock, seal: ContentEncryptor) -> ContentBlock:
    # As in the core: an unknown type is not trusted.
    return replace(block, text=seal(block.text, block.type != "trusted-text"), data=seal(block.data, False))


def _segment_texts(segments: Iterable[Segment]) -> list[str]:
    return [text for segment in segments for block in segment.content for text in (block.text, block.data)]


def _texts_of_options(options: RunOptions) -> list[str]:
    mappings = (options.metadata, options.payload_metadata, options.parent_context)
    payloads = [hook[PAYLOAD] for hook in map(_parse_hook, options.on_complete) if hook.get(PAYLOAD) is not None]
    hooks = [one if isinstance(one, str) else orjson.dumps(one).decode() for one in payloads]
    return [*(value for mapping in mappings for value in mapping.values()), *hooks]
