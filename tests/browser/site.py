"""The page as it is served: by the api of the stack, which is in open mode, and by a second api with tokens.

The second one shares the log, the read models and everything else with the first, and costs a second where a stack
with tokens would cost half a minute. A test may kill either: the supervisor of the stack starts the first again.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from loomlog.services.cli.stack.ports import pick_port
from tests.acceptance.installation import Installation

ADMIN, ACME, GLOBEX, READER = "token-of-the-admin", "token-of-acme", "token-of-globex", "token-of-a-reader"
PRINCIPALS = """
principals:
  ada: { tenant: acme, subject: ada, scopes: ["substrate:tenant"], token_env: LOOMLOG_ACME_TOKEN }
  gus: { tenant: globex, subject: gus, scopes: ["substrate:tenant"], token_env: LOOMLOG_GLOBEX_TOKEN }
  rob: { tenant: acme, subject: rob, scopes: ["runs:read"], token_env: LOOMLOG_READER_TOKEN }
"""
READY_WITHIN_S = 60.0
STOP_WITHIN_S = 15.0
POLL_S = 0.05


@dataclass(slots=True)
class Site:
    """Two apis over one log."""

    stack: Installation
    environ: dict[str, str] = field(default_factory=dict)
    _api: subprocess.Popen[bytes] | None = None
    _callers: "dict[str, Caller]" = field(default_factory=dict)

    def __post_init__(self) -> None:
        status = self.stack.loomlog("status", "--json").json
        principals = self.stack.folder / "principals.yaml"
        principals.write_text(PRINCIPALS)
        self.environ = {
            **self.stack.environ,
            "LOOMLOG_KAFKA": status["kafka"],
            "LOOMLOG_POSTGRES": record_of(self.stack)["postgres"],
            "LOOMLOG_CONFIG_FILES": f"{self.stack.environ['LOOMLOG_CONFIG_FILES']}:{principals}",
            "LOOMLOG_LISTEN_ADDR": f"127.0.0.1:{pick_port()}",
            "LOOMLOG_AUTH_TOKEN": ADMIN,
            "LOOMLOG_ACME_TOKEN": ACME,
            "LOOMLOG_GLOBEX_TOKEN": GLOBEX,
            "LOOMLOG_READER_TOKEN": READER,
        }

    @property
    def open_origin(self) -> str:
        """Where it just opens."""
        return f"http://{self.stack.environ['LOOMLOG_LISTEN_ADDR']}"

    @property
    def origin(self) -> str:
        """Where a token is asked for."""
        return f"http://{self.environ['LOOMLOG_LISTEN_ADDR']}"

    def start(self, **changes: str) -> None:
        """Start the api with tokens, with other values of the environment."""
        with (self.stack.folder / "second-api.log").open("ab") as log:
            self._api = subprocess.Popen(
                [sys.executable, "-P", "-m", "loomlog.services.api.main"],
                cwd=self.stack.project,
                env={**self.environ, **changes},
                stdout=log,
                stderr=log,
            )
        self._until_ready()

    def kill(self) -> None:
        """End the api with tokens in the middle of whatever it does."""
        if self._api is not None:
            self._api.kill()
            self._api.wait(STOP_WITHIN_S)
            self._api = None

    def stop(self) -> None:
        for caller in self._callers.values():
            caller.close()
        if self._api is not None:
            self._api.terminate()
            self._api.wait(STOP_WITHIN_S)
            self._api = None

    def kill_open_api(self) -> None:
        """End the api of the stack with kill -9; its supervisor starts it again."""
        (api,) = (child for child in record_of(self.stack)["children"] if child["name"] == "api")
        os.kill(api["pid"], signal.SIGKILL)

    def client(self, token: str = "") -> "Caller":
        """Return a client of the API for a token; without one, of the api in open mode."""
        if token not in self._callers:
            self._callers[token] = Caller(self.origin if token else self.open_origin, token)
        return self._callers[token]

    def _until_ready(self) -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < deadline:
            assert self._api is not None
            assert self._api.poll() is None, (self.stack.folder / "second-api.log").read_text()[-4_000:]
            try:
                if httpx.get(f"{self.origin}/readyz", trust_env=False).status_code == 200:
                    return
            except httpx.TransportError:
                pass  # it does not listen yet
            time.sleep(POLL_S)
        raise TimeoutError(f"the api with tokens was not ready after {READY_WITHIN_S} s")


class Caller(httpx.Client):
    """Calls of the HTTP API, for what a test needs before a person looks."""

    def __init__(self, origin: str, token: str) -> None:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        super().__init__(base_url=origin, headers=headers, timeout=READY_WITHIN_S, trust_env=False)

    def ask(self, method: str, path: str, **options: Any) -> Any:
        """Return the answer of a call that must succeed."""
        answer = self.request(method, path, **options)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def start(self, prompt: str, *, agent: str = "analyst", **body: Any) -> str:
        """Start a run and return its id, at once."""
        spawns = [{"agent": agent, "prompt": prompt, **body}]
        return str(
            self.ask("POST", "/v1/runs:batch", json={"mode": "detach", "spawns": spawns})["results"][0]["run_id"]
        )

    def finish(self, prompt: str, *, agent: str = "analyst", **body: Any) -> str:
        """Start a run, wait for its end, and return its id."""
        answer = self.post("/v1/runs", json={"agent": agent, "prompt": prompt, **body})
        assert answer.is_success, answer.text
        return next(str(frame["run_id"]) for frame in frames_of(answer.text) if "run_id" in frame)


def record_of(stack: Installation) -> Any:
    """Return what the stack has recorded about its processes and addresses."""
    return json.loads((Path(stack.environ["LOOMLOG_HOME"]) / "stack.json").read_text())


def frames_of(text: str) -> list[Mapping[str, Any]]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
