"""Messages that no client sends: each ends with a status that says what is wrong, and none as a bug of ours."""

import random
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor

from loomlog.services.grpc.messages import SERVICE, message_class, service_descriptor
from loomlog.services.grpc.rpcs import TOOL_RPCS, tool_targets
from tests.services.grpc.serving import Served, served

METHODS = [
    method for method in service_descriptor().methods if method.input_type.fields and method.name != "PauseRuntime"
]
"""Those whose message says anything; after a pause, others would be refused for that reason."""
DEADLINE_S = 0.5
EACH = 12
"""Messages for each RPC."""
BUGS = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
TEXTS = ("", "x", "../..", "\0", "é" * 200, "user", "set", "list", "all", "-1", "{}", "x" * 5_000)
BYTES = (b"", b"{}", b"[]", b"{", b'{"op": 1}', b'{"op": "list"}', b"[" * 5_000, b"1e999", b"\xff", b'"\\ud800"')
NUMBERS = (-1, 0, 1, 2**31 - 1, -(2**31))


def scalar(chance: random.Random, field: FieldDescriptor) -> Any:
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return chance.choice(TEXTS)
        case FieldDescriptor.TYPE_BYTES:
            return chance.choice(BYTES)
        case FieldDescriptor.TYPE_BOOL:
            return chance.random() < 0.5
        case FieldDescriptor.TYPE_DOUBLE:
            return chance.choice((0.0, -1.0, float("nan"), float("inf")))
        case _:
            return chance.choice(NUMBERS)


def message_of(chance: random.Random, kind: Any, depth: int = 0) -> Any:
    """A message with some of its fields, whatever they are."""
    message = kind()
    for field in kind.DESCRIPTOR.fields:
        if chance.random() < 0.4:
            continue
        holder = getattr(message, field.name)
        if field.message_type is None:
            value = scalar(chance, field)
            holder.append(value) if field.is_repeated else setattr(message, field.name, value)
        elif field.message_type.GetOptions().map_entry:
            holder[chance.choice(TEXTS)] = chance.choice(TEXTS)
        elif depth < 3:
            part = message_of(chance, type(holder.add()) if field.is_repeated else type(holder), depth + 1)
            (holder[-1] if field.is_repeated else holder).CopyFrom(part)
    return message


def bytes_of(chance: random.Random, kind: Any) -> bytes:
    """A message; sometimes only its beginning, sometimes no message at all."""
    raw: bytes = message_of(chance, kind).SerializeToString()
    match chance.randrange(2):
        case 0:
            return raw[: chance.randrange(len(raw) + 1)]
        case 1:
            return chance.randbytes(chance.randrange(60))
        case _:
            return raw


async def status(here: Served, name: str, raw: bytes, *, is_stream: bool) -> tuple[grpc.StatusCode, str]:
    try:
        if is_stream:
            invoke = here.channel.unary_stream(f"/{SERVICE}/{name}")
            call = invoke(raw, metadata=here.metadata, timeout=DEADLINE_S)
            await call.read()
            call.cancel()
        else:
            await here.raw(name, raw, timeout_s=DEADLINE_S)
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    return grpc.StatusCode.OK, ""


@pytest.mark.parametrize("seed", range(2))
async def test_nothing_that_is_sent_is_a_bug_of_ours(tmp_path: Path, seed: int):
    chance = random.Random(seed)
    async with served(tmp_path) as here:
        for method in METHODS:
            for _ in range(EACH):
                raw = bytes_of(chance, message_class(method.input_type.name))
                code, text = await status(here, method.name, raw, is_stream=method.server_streaming)
                assert code not in BUGS, (method.name, raw, text)
        assert [event.type for event in await here.run()][-1] == "done"


@pytest.mark.parametrize("name", TOOL_RPCS)
async def test_wrong_fields_of_a_tool_are_answers_or_refusals(tmp_path: Path, name: str):
    async with served(tmp_path) as here:
        for op in tool_targets(name):
            for more in (b"", b', "name": 1', b', "unknown": null', b', "scope": "galaxy", "limit": -1'):
                raw = b'{"op": "' + op.encode() + b'"' + more + b"}"
                message = message_class("SubstrateRequest")(input_json=raw)
                code, text = await status(here, name, message.SerializeToString(), is_stream=False)
                assert code not in BUGS, (name, raw, text)
