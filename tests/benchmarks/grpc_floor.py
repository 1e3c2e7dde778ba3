"""What gRPC itself costs: RPCs of a handler that sends ready messages, from a server process without anything else.

    python -m tests.benchmarks.grpc_floor [--messages 24] [--bytes 300] [--rpcs 3000] [--in-flight 16]

Server and settings as of services/grpc/main.py. Prints CPU milliseconds of the server process for each RPC, its start
left out. An A3x2 run has about as many messages: what its process takes beyond this is ours.
"""

import argparse
import asyncio
import resource
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import uvloop

from tests.benchmarks.grpc_client import Connection, header_block


class Ready(grpc.GenericRpcHandler):
    """Answers every RPC with the same messages."""

    def __init__(self, messages: int, size: int) -> None:
        self._messages, self._message = messages, b"x" * size

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes]":
        async def answer(raw: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> None:
            for _ in range(self._messages):
                await context.write(self._message)

        return grpc.unary_stream_rpc_method_handler(answer)  # type: ignore[arg-type]  # the stubs know no writing handler


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def serve(messages: int, size: int) -> None:
    """Serve until standard input has a line; print the port, and what it took from the first line to the second."""
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    server.add_generic_rpc_handlers((Ready(messages, size),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    loop = asyncio.get_running_loop()
    print(port, flush=True)
    await loop.run_in_executor(None, sys.stdin.readline)
    before_s = cpu_s()
    print("counting", flush=True)
    await loop.run_in_executor(None, sys.stdin.readline)
    print(cpu_s() - before_s, flush=True)
    await server.stop(0)


@asynccontextmanager
async def counted(arguments: list[str], taken: list[float]) -> AsyncIterator[int]:
    """Start the server; yields its port, and appends its CPU seconds of the block."""
    command = [sys.executable, "-m", "tests.benchmarks.grpc_floor", "--serve", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        port = int(process.stdout.readline())
        process.stdin.write("count\n")
        process.stdin.flush()
        process.stdout.readline()
        yield port
        process.stdin.write("end\n")
        process.stdin.flush()
        taken.append(float(process.stdout.readline()))


async def drive(port: int, rpcs: int, in_flight: int) -> None:
    _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", port)
    headers, left = header_block("/floor/Run", f"127.0.0.1:{port}", ""), iter(range(rpcs))

    async def worker() -> None:
        for _ in left:
            await connection.call(headers, b"run")

    await asyncio.gather(*(worker() for _ in range(in_flight)))


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--messages", type=int, default=24)
    parser.add_argument("--bytes", type=int, default=300)
    parser.add_argument("--rpcs", type=int, default=3_000)
    parser.add_argument("--in-flight", type=int, default=16)
    options = parser.parse_args()
    if options.serve:
        await serve(options.messages, options.bytes)
        return
    taken: list[float] = []
    for _ in range(3):
        arguments = ["--messages", str(options.messages), "--bytes", str(options.bytes)]
        async with counted(arguments, taken) as port:
            await drive(port, options.rpcs, options.in_flight)
    each_ms = sorted(one / options.rpcs * 1_000 for one in taken)
    print(
        f"gRPC alone: {each_ms[1]:.2f} ms of CPU an RPC of {options.messages} messages, {options.in_flight} in flight"
        f" ({each_ms[0]:.2f} to {each_ms[-1]:.2f} in three)"
    )


if __name__ == "__main__":
    uvloop.run(main())
