"""The gRPC server over a World, in this process: RPCs with our own messages, over a real connection."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from loomlog.connectors.storage.state_files import StateFiles
from loomlog.services.api.service import Service
from loomlog.services.core.access.decide import Caller
from loomlog.services.grpc.front import Front
from loomlog.services.grpc.messages import SERVICE, message_class, service_descriptor
from loomlog.services.grpc.server import build_server, listen, set_serving
from tests.services.api.serving import service_of
from tests.services.application.world import ADMIN_CALLER, World, world

MESSAGE_BYTES_MAX = 200_000
WAIT_S = 30.0


@dataclass(slots=True)
class Served:
    """A world, the service of its process, and a connection to it."""

    world: World
    service: Service
    address: str
    channel: grpc.aio.Channel

    def call(
        self, rpc: str, /, *, caller: Caller | None = ADMIN_CALLER, timeout_s: float = WAIT_S, **fields: Any
    ) -> Any:
        """An RPC that is under way."""
        method = service_descriptor().methods_by_name[rpc]
        make = self.channel.unary_stream if method.server_streaming else self.channel.unary_unary
        invoke = make(
            f"/{SERVICE}/{rpc}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=message_class(method.output_type.name).FromString,
        )
        more: Sequence[tuple[str, str]] = fields.pop("metadata", ())
        metadata = (*_token(caller), *more)
        return invoke(message_class(method.input_type.name)(**fields), metadata=metadata, timeout=timeout_s)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return _token(ADMIN_CALLER)

    async def raw(self, name: str, raw: bytes, *, timeout_s: float) -> bytes:
        """The answer to these bytes."""
        return await self.channel.unary_unary(f"/{SERVICE}/{name}")(raw, metadata=self.metadata, timeout=timeout_s)

    async def run(self, agent: str = "soaker", prompt: str = "go", **more: Any) -> list[Any]:
        """A finished run: its events."""
        return [event async for event in self.call("Run", agent=agent, segments=user_text(prompt), **more)]


def _token(caller: Caller | None) -> tuple[tuple[str, str], ...]:
    return () if caller is None else (("authorization", f"Bearer {caller.name}-token"),)


def user_text(text: str) -> list[Any]:
    """The segments of a prompt."""
    block = message_class("PromptContentBlock")(type="trusted-text", text=text)
    return [message_class("PromptSegment")(role="user", content=[block])]


@contextlib.asynccontextmanager
async def served(
    folder: Path,
    *,
    has_reflection: bool = False,
    is_ready: bool = True,
    certificate: Path | None = None,
    key: Path | None = None,
    **more: Any,
) -> AsyncIterator[Served]:
    """The server over a World that works; not `is_ready`: one that waits for everything."""
    more.setdefault("state_files", StateFiles(folder / "states"))
    async with world(**more) as made:
        service = service_of(made if is_ready else None, folder)
        server, state = build_server(Front(service), message_bytes_max=MESSAGE_BYTES_MAX, has_reflection=has_reflection)
        await set_serving(state, is_serving=is_ready)
        address = f"127.0.0.1:{listen(server, '127.0.0.1:0', certificate=certificate, key=key)}"
        await server.start()
        channel = grpc.aio.insecure_channel(address)
        try:
            yield Served(made, service, address, channel)
        finally:
            await channel.close()
            await server.stop(None)


async def refusal(answer: Any, *, is_begun: bool = False) -> grpc.aio.AioRpcError:
    """How an RPC was refused, or a stream ended that has begun."""
    try:
        await (answer if hasattr(answer, "__await__") else answer.read())
        while is_begun and await answer.read() is not grpc.aio.EOF:
            pass
    except grpc.aio.AioRpcError as error:
        return error
    raise AssertionError("it was answered")
