"""Stored frames that were encrypted, on their way to whoever may see them."""

import orjson

from connectors.memory_log import MemoryLog
from projections.transcript import TranscriptRow
from services.commands.content import Content
from tests.services.stream.test_subject_keys import TOPIC, keys_over

SECRET = "sk-abcdefghijklmnop1234"


async def test_a_secret_in_the_arguments_of_a_call_is_masked_once_they_are_opened() -> None:
    keys = keys_over(MemoryLog({TOPIC: 1}))
    sealer = await keys.sealer("acme", "ada")
    given = sealer.text(orjson.dumps({"value": SECRET, "key": "k"}).decode())
    event = {"type": "tool_call", "tool_use": {"id": "c1", "name": "Memory", "input": given}}
    said = {"type": "text", "text": sealer.text(f"I was told {SECRET}")}
    rows = [
        TranscriptRow("r_1", seq, "acme", "s_1", 0, str(frame["type"]), orjson.dumps(frame).decode(), None)
        for seq, frame in enumerate((event, said))
    ]
    call, text = await Content(keys).transcript(rows)
    assert orjson.loads(call.event)["tool_use"]["input"] == {"value": "[redacted:key]", "key": "k"}
    assert orjson.loads(text.event)["text"] == f"I was told {SECRET}"
