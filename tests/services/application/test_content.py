"""Stored frames that were encrypted, on their way to whoever may see them."""

import orjson
import pytest

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.projections.transcript import TranscriptRow
from loomlog.services.application.content import ContentAccess
from loomlog.services.core.refusals import Refused
from tests.services.stream.encryption.test_subject_keys import KEK, TOPIC, keys_over

SECRET = "sk-abcdefghijklmnop1234"


async def test_a_secret_in_the_arguments_of_a_call_is_masked_once_they_are_opened() -> None:
    keys = keys_over(MemoryLog({TOPIC: 1}))
    sealer = await keys.cipher_for("acme", "ada")
    inputs = sealer.text(orjson.dumps({"value": SECRET, "key": "k"}).decode())
    event = {"type": "tool_call", "tool_use": {"id": "c1", "name": "Memory", "input": inputs}}
    output = {"type": "text", "text": sealer.text(f"I was told {SECRET}")}
    rows = [
        TranscriptRow("r_1", seq, "acme", "s_1", 0, str(frame["type"]), orjson.dumps(frame).decode(), None, 0)
        for seq, frame in enumerate((event, output))
    ]
    call, text = await ContentAccess(keys).decrypt_transcript(rows)
    assert orjson.loads(call.event)["tool_use"]["input"] == {"value": "[redacted:key]", "key": "k"}
    assert orjson.loads(text.event)["text"] == f"I was told {SECRET}"


async def test_a_key_that_only_a_newer_key_encryption_key_opens_is_said_and_not_taken_for_a_log_that_is_away() -> None:
    log = MemoryLog({TOPIC: 1})
    await keys_over(log, b"n" * 32, KEK).cipher_for("acme", "ada")
    here = ContentAccess(keys_over(log))
    for asked in (here.encryptor_for("acme", "ada"), here.keyed_digest("acme", "ada", "ab12")):
        with pytest.raises(Refused) as caught:
            await asked
        assert caught.value.code == "keys_unavailable"
        assert "which this process was not started with: restart it with the new" in caught.value.message
        assert caught.value.retry_after_s
