"""What is content in a command, and what a dead letter may hold of it."""

from connectors.memory_log import MemoryLog
from connectors.protocols import Incoming
from schemas.codec import local_codec
from schemas.run_commands import CancelRun, PostInput, StartRun
from schemas.values import CommandEnvelope, ContentBlock, Segment
from services.stream.sealed_content import letters_value, sealed_command, texts_in
from tests.services.stream.test_subject_keys import TOPIC, keys_over

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
    metadata={"note": SAID},
    parent_context={"root": SAID},
)


def record(value: bytes, topic: str = COMMANDS) -> Incoming:
    return Incoming(topic, 0, 0, 0, b"k", value, ())


async def test_all_content_of_a_start_is_sealed_and_nothing_else() -> None:
    keys = keys_over(MemoryLog({TOPIC: 1}))
    sealed = sealed_command(START, keys.unsealed("acme", "ivy", await keys.sealer("acme", "ivy")))
    assert isinstance(sealed, StartRun)
    assert (sealed.agent, sealed.user_id, sealed.envelope) == (START.agent, START.user_id, START.envelope)
    assert [keys.opened(text, "acme") for text in texts_in(sealed)] == texts_in(START)
    assert [text.partition(".")[0] for text in (block.text for block in sealed.segments[0].content)] == [
        "lenc1", "lenc1u", ""
    ]  # fmt: skip
    assert SAID.encode() not in local_codec().encode(sealed)
    assert b"aGk=" not in local_codec().encode(sealed)


async def test_a_letter_holds_a_start_sealed_when_its_subject_has_a_key() -> None:
    keys, codec = keys_over(MemoryLog({TOPIC: 1})), local_codec()
    kept = letters_value(keys, codec, COMMANDS)
    assert kept(record(codec.encode(START))) is None, "nobody can seal it yet, so it stays in its topic"
    await keys.sealer("acme", "ivy")
    value = kept(record(codec.encode(START)))
    assert value is not None
    assert SAID.encode() not in value
    again = codec.decode(value).record
    assert isinstance(again, StartRun)
    assert keys.opened(again.prompt, "acme") == SAID
    assert kept(record(value)) == value


async def test_a_letter_holds_what_has_no_content_and_nothing_that_cannot_be_told() -> None:
    keys, codec = keys_over(MemoryLog({TOPIC: 1})), local_codec()
    kept = letters_value(keys, codec, COMMANDS)
    cancel = codec.encode(CancelRun(envelope=ENVELOPE, run_id="r_1", reason="late"))
    assert kept(record(cancel)) == cancel
    assert kept(record(b"\x00\x00")) is None
    assert kept(record(codec.encode(PostInput(envelope=ENVELOPE, run_id="r_1", text=SAID)))) is None
    assert kept(record(b"\x00\x00", "loom.run.events")) == b"\x00\x00"
