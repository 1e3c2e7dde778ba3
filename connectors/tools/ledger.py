"""Ledger: a tool whose only effect is one line in a file, so that a chaos test can count effects.

Each call appends `idempotency_key run_id` in one write with O_APPEND and returns after fsync, so a line is in the file
exactly when the effect happened, whenever a process is killed. Afterwards the file is compared with the log: a key that
occurs twice is a repeated effect, a returned call without its line is a lost effect.

A call can be given a duration, half of it before its line and half after: then a kill in the middle of calls hits some
whose effect has happened and some whose effect has not, which look the same from outside.

Before: registry.py, when a ledger file is configured. After: the operating system.
"""

import asyncio
import os
from collections.abc import Mapping
from typing import Any

from loomlog.connectors.errors import Transient
from loomlog.connectors.protocols import EffectClass, NoEffect, ToolContext, ToolResult, UnknownEffect
from loomlog.connectors.tools.arguments import check_arguments
from loomlog.connectors.tools.results import ToolCallRefused, error_result
from loomlog.connectors.tools.thread_pool import CancellationToken, ThreadPool

WAIT_MAX_MS = 10_000
"""Maximum wait in milliseconds; well inside the call's own timeout, so that a wait never becomes a timeout."""


class LedgerTool:
    name = "Ledger"
    description = "Appends one line that names this call to the operator's ledger file. For counting effects in tests."
    side_effect_class = "state"
    usage_hint = "Only for tests that count effects."
    timeout_s: float = 30.0
    input_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "wait_ms": {
                "type": "integer",
                "description": "How long the call takes at least, in milliseconds: half before its line, half after.",
                "minimum": 0,
                "maximum": WAIT_MAX_MS,
            }
        },
        "required": [],
        "additionalProperties": False,
    }

    def __init__(self, threads: ThreadPool, *, path: str, effect: EffectClass) -> None:
        assert effect in (EffectClass.IDEMPOTENT, EffectClass.UNSAFE), effect
        self._threads = threads
        self._path = path
        self._effect = effect

    def effect_class(self, arguments: Mapping[str, Any]) -> EffectClass:
        return self._effect

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        try:
            pause_s = check_arguments(self.name, arguments, self.input_schema).get("wait_ms", 0) / 2000
            words = (context.idempotency_key, context.run_id)
            if not all(word and word.isprintable() and " " not in word for word in words):
                raise ToolCallRefused(f"Ledger needs a key and a run id without blanks, not {words!r}.")
            line = f"{context.idempotency_key} {context.run_id}\n".encode()
            if pause_s:
                await asyncio.sleep(pause_s)
            await self._threads.run(lambda stop: self._append(line, stop))
            if pause_s:
                await asyncio.sleep(pause_s)
        except ToolCallRefused as reason:
            return error_result(reason)
        except OSError as error:
            return error_result(
                ToolCallRefused(f"The ledger could not be written: {error.strerror}. The line may be in it or not.")
            )
        return ToolResult(text=f"Recorded {context.idempotency_key}.")

    def _append(self, line: bytes, cancellation: CancellationToken) -> None:
        cancellation.raise_if_cancelled()
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            written = os.write(descriptor, line)
            if written != len(line):
                raise ToolCallRefused(f"The ledger took {written} of {len(line)} bytes: the disk may be full.")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class ReconcilingLedgerTool(LedgerTool):
    """A ledger with a reconciler.

    The calling process writes its line itself: after that process has ended, a missing line will never be written.
    """

    async def reconcile(
        self, arguments: Mapping[str, Any], context: ToolContext
    ) -> ToolResult | NoEffect | UnknownEffect:
        line = f"{context.idempotency_key} {context.run_id}\n".encode()
        try:
            is_recorded = await self._threads.run(lambda stop: self._contains(line))
        except OSError as error:
            raise Transient(f"The ledger could not be read: {error.strerror}.", kind="unavailable") from error
        if is_recorded:
            return ToolResult(text=f"Recorded {context.idempotency_key}.")
        return NoEffect(reason="the ledger has no such line")

    def _contains(self, line: bytes) -> bool:
        try:
            with open(self._path, "rb") as lines:
                return line in lines
        except FileNotFoundError:
            return False
