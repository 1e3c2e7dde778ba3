"""The parts of commands, events and values that are user content, as the schemas class them (schemas/generate.py).

Everything else stays readable: ids, names, roles, limits, reasons. No family and no process lists its content: what is
classed is encrypted wherever it stands, in the records of a record too.

    text, untrusted   the whole text; an untrusted one is shown fenced
    hook              a JSON text of which some keys are content

Before: a client's request in services/application, a command of a microservice in services/runtime. After: the log.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, TypeVar, get_args, get_type_hints

import orjson

from loomlog.connectors.crypto.content_encryption import is_token
from loomlog.connectors.protocols import LogRecord
from loomlog.schemas.codec import Codec, Undecodable
from loomlog.schemas.generated.run_commands import (
    Command,
    ForkRun,
    GiveApproval,
    ImportRun,
    PostInput,
    ResolveCall,
    ResolveInterruption,
    StartRun,
)
from loomlog.schemas.generated.run_events import ChildReturned, HookActed, RunStarted, ToolReturned
from loomlog.schemas.generated.values import ContentBlock
from loomlog.schemas.records import Record, replace
from loomlog.services.stream.archive.bundle import blob_refs
from loomlog.services.stream.encryption.subject_keys import ContentEncryptor, SubjectKeys

PAYLOAD = "payload"
HOOK_CONTENT = ("payload", "url")
"""Keys of a hook (connectors/definitions/triggers.py) with content; the rest says when it is due, and where it goes."""
RECORD = "record"
"""Form of a field that holds records."""
RESULTS = (ToolReturned, ChildReturned, HookActed)
TRUSTED_TEXT = "trusted-text"
ContentRecord = StartRun | ForkRun | PostInput | ResolveCall | ResolveInterruption | GiveApproval
"""Commands of runs whose content is encrypted. Forwarded results were encrypted by their sender; an import keeps its
bytes, because the hash of its history covers them: with a key, a plaintext one is refused (is_in_clear).
"""
RecordT = TypeVar("RecordT", bound=Record)


def encrypt_content(record: RecordT, seal: ContentEncryptor) -> RecordT:
    """Return the record with all its content encrypted, in the records that it holds too. Empty texts stay so."""
    changes = {}
    for name, form in _plan(type(record)):
        value = getattr(record, name)
        changed = _encrypt_value(record, form, value, seal)
        if changed != value:
            changes[name] = changed
    return replace(record, **changes) if changes else record


def content_parts(record: Record) -> list[tuple[str, bool]]:
    """Return the texts of a record that are content, and whether each is untrusted."""
    parts: list[tuple[str, bool]] = []

    def collect(text: str, untrusted: bool) -> str:
        parts.append((text, untrusted))
        return text

    encrypt_content(record, collect)
    return parts


def content_texts(record: Record) -> list[str]:
    """Return the texts of a record that are content."""
    return [text for text, _ in content_parts(record)]


def has_content(kind: type[Record]) -> bool:
    """Whether records of a kind, or those that they hold, have content."""
    return bool(_plan(kind))


@cache
def _plan(kind: type[Record]) -> tuple[tuple[str, str], ...]:
    """Return the fields that are content with their form, and those that hold records with content."""
    held = (
        (name, RECORD)
        for name, hint in get_type_hints(kind).items()
        if any(has_content(one) for one in _records_in(hint)) and name in kind.__struct_fields__
    )
    return (*kind.CONTENT.items(), *held)


def _records_in(hint: Any) -> list[type[Record]]:
    if isinstance(hint, type) and issubclass(hint, Record):
        return [hint]
    return [one for part in get_args(hint) for one in _records_in(part)]


def _encrypt_value(record: Record, form: str, value: Any, seal: ContentEncryptor) -> Any:
    match value:
        case str():
            return _encrypt_text(record, form, value, seal) if value else value
        case Record():
            return encrypt_content(value, seal)
        case tuple():
            return tuple([_encrypt_value(record, form, one, seal) for one in value])
        case Mapping():
            return {name: _encrypt_value(record, form, one, seal) for name, one in value.items()}
        case _:
            return value


def _encrypt_text(record: Record, form: str, text: str, seal: ContentEncryptor) -> str:
    match form:
        case "hook":
            return _encrypt_hook(text, seal)
        case "untrusted":
            return seal(text, True)
    # As in the core: a block of an unknown type is not trusted.
    is_untrusted = isinstance(record, ContentBlock) and text is record.text and record.type != TRUSTED_TEXT
    return seal(text, is_untrusted)


def _encrypt_hook(text: str, seal: ContentEncryptor) -> str:
    """Encrypt what is content in a hook: each becomes the token of its text, or of its JSON."""
    hook = _parse_hook(text)
    changes = {}
    for name in HOOK_CONTENT:
        value = hook.get(name)
        if value is None or value == "":
            continue
        is_text = isinstance(value, str) and (name != PAYLOAD or is_token(value))
        plaintext = value if is_text else orjson.dumps(value).decode()
        if (changed := seal(plaintext, False)) != plaintext:
            changes[name] = changed
    return orjson.dumps({**hook, **changes}).decode() if changes else text


def _parse_hook(text: str) -> Mapping[str, Any]:
    """Return a hook of a run; nothing when it is none, and is refused at the end of the run."""
    try:
        hook = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return hook if isinstance(hook, dict) else {}


def encrypt_command(command: ContentRecord, seal: ContentEncryptor) -> ContentRecord:
    """Return the command of a run with its content encrypted."""
    return encrypt_content(command, seal)


def texts_of_command(command: Command) -> list[str]:
    """Return the content of a command of a run that is encrypted by its receiver; empty if it has none."""
    return content_texts(command) if isinstance(command, ContentRecord) else []


def texts_of_event(event: Record) -> list[str]:
    """Return the texts of people and models in an event.

    Results of tools are left out: they are encrypted if the reply that requested them is, and older logs have plaintext
    texts of the core instead.
    """
    return [] if isinstance(event, RESULTS) else content_texts(event)


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
