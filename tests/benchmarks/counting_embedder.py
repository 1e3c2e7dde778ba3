"""An embedding server in a thread of this process that counts its texts; their vectors are those of the stub.

Before: memory.py. After: nothing.
"""

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from loomlog.connectors.embedders.stub import StubEmbedder


class CountingEmbedder:
    """The API of Ollama, on a port of its own."""

    def __init__(self) -> None:
        self.texts = 0
        """Texts that were embedded so far."""
        stub = StubEmbedder()
        self.dimension = stub.dimension
        count, lock = self._count, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
                with lock:
                    count(len(texts))
                reply = json.dumps({"embeddings": asyncio.run(stub.embed(texts))}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name of the base class)
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def _count(self, texts: int) -> None:
        self.texts += texts

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
