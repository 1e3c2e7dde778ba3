"""Provider of code agents: JavaScript instead of a model, one tool call per turn, the same calls every time.

A turn executes the agent's script from its start. Recorded results are passed to it in order, and the first call
without one becomes the turn's tool call (`cj-<turn>-<index>`); when the script returns, its value is the answer. A
script thus survives the death of any process as every run does, without state of its own. The record must match the
script's calls, name and arguments, otherwise the run fails: no call is made on a wrong record.

The API and the limits are those of runtime parity 2.10: `run(input)`, Memory, Channel, Agent.spawn, each granted tool a
function, tool errors as exceptions, no code from text, no input or output, no timers, randomness and time from the run.
Not chosen: V8 and threads (docs/decisions/0001-dependencies.md has the figures).

Before: services/runtime/model_calls. After: code_replay.py, code_sandbox.py.
"""

from collections.abc import AsyncGenerator

from loomlog.connectors.errors import Permanent
from loomlog.connectors.models.code_replay import (
    FROZEN_EPOCH_MS,
    FROZEN_SEED,
    latest_prompt,
    recorded_calls,
    script_input,
    seed_of,
)
from loomlog.connectors.models.code_sandbox import MAX_CONCURRENT_SCRIPTS, CodeSandbox, ScriptCall, ScriptJob
from loomlog.connectors.protocols import Capabilities, ModelItem, ModelRequest, Reply, TextDelta
from loomlog.schemas.generated.values import ToolCall, Usage

REPORTED_MODEL = "loomcycle/code-js"
"""Model name in the usage rows of existing deployments."""
CODE_BODY_MAX_BYTES = 262_144
RUN_TIMEOUT_S = 120.0
"""Seconds for a whole run when neither the run, its agent nor the operator sets a limit."""

CAPABILITIES = Capabilities(
    parallel_tool_calls=False, streaming=False, unbounded_iterations=True, metadata_via_input=True
)


class CodeModel:
    """Model that executes scripts. `run_timeout_s` bounds each execution of runs without a time limit."""

    max_concurrent = MAX_CONCURRENT_SCRIPTS
    """Scripts at a time, for the queue of the provider; more would wait here in the order of arrival."""

    def __init__(self, *, provider: str, run_timeout_s: float = RUN_TIMEOUT_S, is_deterministic: bool = False) -> None:
        """`is_deterministic`: randomness and time are the same for every run, so that runs can be compared."""
        self.provider = provider
        self.capabilities = CAPABILITIES
        self._run_timeout_s = run_timeout_s
        self._is_deterministic = is_deterministic
        self._sandbox = CodeSandbox(provider)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        script = request.script
        if script is None or not script.body:
            raise self._failure("code_agent_load", "the agent has no script: give it code_body, or a file index.js")
        if (size := len(script.body.encode())) > CODE_BODY_MAX_BYTES:
            raise self._failure("code_agent_load", f"the script has {size} bytes; at most {CODE_BODY_MAX_BYTES}")
        left_s = self._run_timeout_s if script.time_left_ms is None else script.time_left_ms / 1000
        if left_s <= 0:
            raise self._failure("code_agent_timeout", "the time limit of the run has expired")
        tools = tuple(tool.name for tool in request.tools)
        outcome = await self._sandbox.run(
            ScriptJob(
                body=script.body,
                input=script_input(script, latest_prompt(request.messages)),
                recorded=recorded_calls(request.messages),
                tools=tools,
                seed=FROZEN_SEED if self._is_deterministic else seed_of(script.run_id, script.agent),
                epoch_ms=FROZEN_EPOCH_MS if self._is_deterministic else script.started_at_ms,
                time_limit_s=left_s,
            )
        )
        if isinstance(outcome, ScriptCall):
            # The script's own process is not trusted to enforce its tool list.
            if outcome.name not in tools:
                raise self._failure(
                    "code_agent_threw", f"the script calls {outcome.name[:100]!r}, which is not granted"
                )
            call = ToolCall(id=f"cj-{script.turn}-{outcome.index}", name=outcome.name, input=outcome.input)
            yield Reply(text="", tool_calls=(call,), stop_reason="tool_use", usage=Usage(), model=REPORTED_MODEL)
            return
        if outcome.text:
            yield TextDelta(text=outcome.text)
        yield Reply(text=outcome.text, stop_reason="end_turn", usage=Usage(), model=REPORTED_MODEL)

    async def list_models(self) -> list[str]:
        return [REPORTED_MODEL]

    async def probe(self) -> None:
        """Succeeds always: the engine is local, and a failed script has no bearing on the next."""

    async def close(self) -> None:
        """End every running script."""
        await self._sandbox.close()

    def _failure(self, code: str, message: str) -> Permanent:
        return Permanent(f"{self.provider} {code}: {message}", kind=code)
