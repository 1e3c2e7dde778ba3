"""What is content in a command, and what a dead letter may hold of it."""

from collections.abc import Mapping
from typing import Any, get_args, get_origin, get_type_hints

import orjson
import pytest

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import ConsumerRecord
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.run_commands import CancelRun, ImportRun, PostInput, StartRun
from loomlog.schemas.generated.run_events import InputReceived, RunPauseRequested, RunStarted
from loomlog.schemas.generated.values import (
    AgentDefinition,
    BlobRef,
    CommandEnvelope,
    ContentBlock,
    Envelope,
    ImportOrigin,
    MemoryContext,
    RunOptions,
    Segment,
)
from loomlog.schemas.records import Record, replace
from loomlog.services.stream.encryption.content_fields import (
    ContentRecord,
    dead_letter_value,
    encrypt_command,
    is_in_clear,
    payloads_of_event,
    texts_of_command,
)
from tests.services.stream.encryption.test_subject_keys import TOPIC, keys_over

COMMANDS = "loom.run.commands"
ENVELOPE = CommandEnvelope(command_id="c_1", tenant="acme", subject="shop", issued_at_ms=1)
SAID = "what ivy said"
BLOCKS = (
    ContentBlock(type="trusted-text", text=SAID),
    ContentBlock(type="untrusted-block", kind="web_content", text=SAID),
    ContentBlock(type="image", media_type="image/png", data="aGk="),
)
START = StartRun(
    envelope=ENVELOPE,
    agent="helper",
    prompt=SAID,
    segments=(Segment(role="user", content=BLOCKS),),
    user_id="ivy",
    options=RunOptions(metadata={"note": SAID}, parent_context={"root": SAID}),
)


def record(value: bytes, topic: str = COMMANDS) -> ConsumerRecord:
    return ConsumerRecord(topic, 0, 0, 0, b"k", value, ())


async def test_all_content_of_a_start_is_sealed_and_nothing_else() -> None:
    keys = keys_over(MemoryLog({TOPIC: 1}))
    sealed = encrypt_command(START, keys.decrypt_if_encrypted("acme", "ivy", await keys.cipher_for("acme", "ivy")))
    assert isinstance(sealed, StartRun)
    assert (sealed.agent, sealed.user_id, sealed.envelope) == (START.agent, START.user_id, START.envelope)
    assert [keys.decrypt(text, "acme") for text in texts_of_command(sealed)] == texts_of_command(START)
    assert [text.partition(".")[0] for text in (block.text for block in sealed.segments[0].content)] == [
        "lenc1", "lenc1u", ""
    ]  # fmt: skip
    assert SAID.encode() not in local_codec().encode(sealed)
    assert b"aGk=" not in local_codec().encode(sealed)


async def test_payload_and_address_of_hooks_are_content_and_the_rest_is_readable() -> None:
    keys = keys_over(MemoryLog({TOPIC: 1}))
    publish = orjson.dumps({"channel": "done", "payload": {"n": [1, SAID]}}).decode()
    url = f"https://a.example/?about={SAID}"
    command = replace(START, options=RunOptions(on_complete=(orjson.dumps({"url": url}).decode(), publish, "x")))
    seal = keys.decrypt_if_encrypted("acme", "ivy", await keys.cipher_for("acme", "ivy"))
    sealed = encrypt_command(command, seal)
    assert isinstance(sealed, StartRun)
    assert encrypt_command(sealed, seal) == sealed
    request, message = map(orjson.loads, sealed.options.on_complete[:2])
    assert keys.decrypt(request["url"], "acme") == url
    assert message["channel"] == "done"
    assert orjson.loads(keys.decrypt(message["payload"], "acme")) == {"n": [1, SAID]}
    assert sealed.options.on_complete[2] == "x"
    assert SAID.encode() not in local_codec().encode(sealed)
    assert {url, orjson.dumps({"n": [1, SAID]}).decode()} <= set(texts_of_command(command))
    assert {request["url"], message["payload"]} <= set(texts_of_command(sealed))


async def test_memory_in_a_prompt_is_content_of_the_run() -> None:
    cipher = await keys_over(MemoryLog({TOPIC: 1})).cipher_for("acme", "ivy")
    prompt, memory = (BlobRef(sha256=digit * 64, size_bytes=20_000) for digit in "ab")
    definition = AgentDefinition(name="a", provider="p", model="m", system_prompt_blob=prompt)
    started = RunStarted(session_id="s", agent_id="a", definition=definition, segments=())
    for text, in_clear in ((SAID, True), (cipher.text(SAID), False), ("", False)):
        event = replace(started, memory_context=MemoryContext(text=text, text_blob=None if text else memory))
        assert is_in_clear(event) is in_clear
        assert payloads_of_event(event) == (set() if text else {memory.sha256})


async def test_a_letter_holds_a_start_sealed_when_its_subject_has_a_key() -> None:
    keys, codec = keys_over(MemoryLog({TOPIC: 1})), local_codec()
    kept = dead_letter_value(keys, codec, COMMANDS)
    assert kept(record(codec.encode(START))) is None, "nobody can seal it yet, so it stays in its topic"
    await keys.cipher_for("acme", "ivy")
    value = kept(record(codec.encode(START)))
    assert value is not None
    assert SAID.encode() not in value
    again = codec.decode(value).record
    assert isinstance(again, StartRun)
    assert keys.decrypt(again.prompt, "acme") == SAID
    assert kept(record(value)) == value


async def test_a_letter_holds_what_has_no_content_and_nothing_that_cannot_be_told() -> None:
    keys, codec = keys_over(MemoryLog({TOPIC: 1})), local_codec()
    kept = dead_letter_value(keys, codec, COMMANDS)
    cancel = codec.encode(CancelRun(envelope=ENVELOPE, run_id="r_1", reason="late"))
    assert kept(record(cancel)) == cancel
    assert kept(record(b"\x00\x00")) is None
    assert kept(record(codec.encode(PostInput(envelope=ENVELOPE, run_id="r_1", text=SAID)))) is None
    assert kept(record(b"\x00\x00", "loom.run.events")) == b"\x00\x00"


def filled(kind: type[Record]) -> Any:
    """A command of that kind with a text of its own in every field that can hold one."""
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for name in kind.__struct_fields__:
        hint = hints[name]
        if hint is str:
            values[name] = f"{name} of it"
        elif hint in (int, bool):
            values[name] = hint(1)
        elif get_origin(hint) in (dict, Mapping) or hint is Mapping:
            values[name] = {"name": f"{name} of it"}
        elif Segment in get_args(hint):
            blocks = [ContentBlock(type="trusted-text", text=f"{name} text", data=f"{name} data")]
            values[name] = (Segment(role="user", content=tuple(blocks)),)
    return kind(**{"envelope": ENVELOPE, **values})


@pytest.mark.parametrize("kind", get_args(ContentRecord))
def test_what_is_sealed_of_a_command_is_what_is_looked_for_in_it(kind: type[Record]) -> None:
    sealed: list[str] = []

    def seal(text: str, untrusted: bool) -> str:
        sealed.append(text)
        return text

    command = filled(kind)
    encrypt_command(command, seal)
    assert sorted(sealed) == sorted(texts_of_command(command))
    assert sealed


async def test_a_letter_never_holds_a_start_with_a_word_in_clear() -> None:
    keys, codec = keys_over(MemoryLog({TOPIC: 1})), local_codec()
    await keys.cipher_for("acme", "ivy")
    start = StartRun(
        envelope=ENVELOPE, agent="helper", user_id="ivy", options=RunOptions(parent_context={"channel": SAID})
    )
    value = dead_letter_value(keys, codec, COMMANDS)(record(codec.encode(start)))
    assert value is not None
    assert SAID.encode() not in value


async def test_a_letter_holds_a_run_that_is_told_here_only_when_all_of_it_is_sealed() -> None:
    keys, codec = keys_over(MemoryLog({TOPIC: 1})), local_codec()
    kept = dead_letter_value(keys, codec, COMMANDS)
    sealer = await keys.cipher_for("acme", "ivy")
    envelope = Envelope(term=1, seq=1, aggregate="r_1", tenant="acme", at_ms=1, prev=bytes(16))

    def told(*events: Any) -> bytes:
        values = tuple(codec.encode_event(envelope, event) for event in events)
        origin = ImportOrigin(
            topic="there",
            partition=0,
            first_offset=1,
            tenant="acme",
            events=len(events),
            tail_digest="ab",
            bundle_sha256="cd",
        )
        return codec.encode(ImportRun(envelope=ENVELOPE, run_id="r_1", origin=origin, first_seq=1, events=values))

    sealed = told(InputReceived(text=sealer.text(SAID)), RunPauseRequested(scope="run", reason="late", by="op"))
    assert kept(record(sealed)) == sealed
    assert kept(record(told(InputReceived(text=sealer.text(SAID)), InputReceived(text=SAID)))) is None
