"""Operations that only MCP has: runs that are waited for, several at once, and what an assistant may ask about us.

A run is started and its stream followed to the end, or until it waits for a person. One that is not over in time is
cancelled and said to be so (parity: reference surfaces 3.2).

Before: server.py finds them in the table. After: services/application/runs/batch.py.
"""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import orjson
from msgspec import Meta
from pydantic import Field

from loomlog.connectors.tools.help import load_help_topics
from loomlog.projections.interrupts import PENDING
from loomlog.services.api.mcp import agent_operations, state_file_operations
from loomlog.services.api.mcp.calls import CallUnderWay, current_call
from loomlog.services.api.mcp.questions import Question, response_of
from loomlog.services.application import limits
from loomlog.services.application.answers.runs import SpawnResult
from loomlog.services.application.application import Application
from loomlog.services.application.authentication import require_access
from loomlog.services.application.bodies.fields import model_fields
from loomlog.services.application.bodies.models import AgentName, RunBody, to_run_request
from loomlog.services.application.errors import bad_request
from loomlog.services.application.operations import streams
from loomlog.services.application.request_context import current_request
from loomlog.services.application.runs.batch import OutcomeBuilder, SpawnOutcome, outcome_json
from loomlog.services.application.runs.start import StartedRun
from loomlog.services.application.streaming.run_states import StateFilter
from loomlog.services.application.streaming.run_stream import RunStream
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.access.rules import ANY_CALLER
from loomlog.services.core.operations import (
    Answer,
    AnyOperation,
    Call,
    Effect,
    Handlers,
    Input,
    McpTool,
    Operation,
    Output,
)
from loomlog.services.core.refusals import Refused

ANSWERED = frozenset({"not_found", "interrupt_closed", "interrupt_expired"})
"""Codes of a question that waits for no answer."""
STATES_MAX, STATES_WAIT_MS_MAX = 200, 5 * 60_000
"""Bounds of one wait for changes of runs: what one message may have, and how long clients keep a request."""


class SpawnBody(RunBody):
    """A run that is waited for."""

    agent: AgentName | None = Field(  # type: ignore[assignment]  # a session has an agent
        None, description="Name of the agent; absent: that of the session."
    )
    timeout_ms: int | None = Field(
        None, ge=1, le=limits.BATCH_WAIT_MS, description="Cancel the run when it has not ended by then."
    )


class RunStatesOfUser(Input, frozen=True, kw_only=True):
    """Which changes of runs are waited for, and how long."""

    user_id: Annotated[str, Meta(min_length=1, max_length=limits.NAME_BYTES_MAX, description="End user.")]
    statuses: Annotated[
        tuple[Literal["running", "completed", "failed", "cancelled"], ...],
        Meta(description="Only these; empty: all."),
    ] = ()
    agent: Annotated[str, Meta(max_length=limits.NAME_BYTES_MAX, description="Only runs of this agent.")] = ""
    max_events: Annotated[int, Meta(ge=1, le=STATES_MAX, description="Most changes of one answer.")] = 16
    timeout_ms: Annotated[
        int, Meta(ge=0, le=STATES_WAIT_MS_MAX, description="Answer with fewer when so long has passed.")
    ] = 30_000


class RunStatesSeen(Output, frozen=True, kw_only=True):
    """Changes of runs in their order, from the call on."""

    events: Annotated[list[dict[str, Any]], Meta(description="A run as it started or ended; the newest is last.")]


class Help(Input, frozen=True, kw_only=True):
    topic: Annotated[str, Meta(max_length=80, description="Name of a topic; absent: which there are.")] = ""


class HelpText(Output, frozen=True, kw_only=True):
    topics: Annotated[list[str], Meta(description="Names of all topics.")]
    text: Annotated[str, Meta(description="The topic's text; empty without one.")] = ""


SPAWN_RUN = Operation(
    name="run.spawn",
    summary="Start a run of an agent, or a further one of a session, and wait for its end.",
    input=model_fields(SpawnBody),
    output=SpawnResult,
    access=streams.START_RUN,
    effect=Effect.WAIT,
    mcp=(McpTool(tool="spawn_run"),),
)
STREAM_USER_RUN_STATES = Operation(
    name="run.states_of_user",
    summary="Wait for runs of a user to start or end, and return these changes.",
    input=RunStatesOfUser,
    output=RunStatesSeen,
    access=streams.WATCH_RUNS,
    effect=Effect.WAIT,
    mcp=(McpTool(tool="stream_user_run_states"),),
)
HELP = Operation(
    name="help.read",
    summary="Read what this installation can do, by topic.",
    input=Help,
    output=HelpText,
    access=ANY_CALLER,
    effect=Effect.READ,
    mcp=(McpTool(tool="context", op="help"),),
)
OPERATIONS: tuple[AnyOperation, ...] = (
    SPAWN_RUN,
    STREAM_USER_RUN_STATES,
    HELP,
    *agent_operations.OPERATIONS,
    *state_file_operations.OPERATIONS,
)


async def start_run(application: Application, caller: Caller, body: SpawnBody) -> StartedRun:
    """Start a run, or a further one of a session. Raises Refused."""
    request = to_run_request(body, idempotency_key=current_request.get().idempotency_key, traceparent="")
    if body.session_id:
        return await application.runs.continue_session(caller, body.session_id, request)
    return await application.runs.start(caller, request)


def started_outcome(started: StartedRun) -> SpawnOutcome:
    """Return the outcome of a run that has not ended."""
    return SpawnOutcome(
        status="running", agent_id=started.agent_id, run_id=started.run_id, session_id=started.session_id
    )


async def open_questions(application: Application, caller: Caller, run_id: str) -> dict[str, Question]:
    """Return the questions of a run that wait for an answer, by their ids. Raises Refused."""
    page = await application.interrupts.list_of_run(caller, run_id, status=PENDING)
    return {
        row.interrupt_id: Question(
            row.interrupt_id,
            row.question or "",
            tuple(orjson.loads(row.options or "[]")),
            row.context or "",
            row.kind or "",
        )
        for row in page.rows
    }


async def answer_questions(application: Application, caller: Caller, run_id: str, answers: Mapping[str, Any]) -> None:
    """Answer questions of a run by their ids; those that wait no more are passed over. Raises Refused."""
    for question_id, answer in answers.items():
        try:
            response = response_of(answer)
        except ValueError as error:
            raise bad_request(f"inputResponses.{question_id[:80]}: {error}") from error
        if response is not None:
            try:
                await application.interrupts.resolve(caller, run_id, question_id, response)
            except Refused as refused:
                if refused.code not in ANSWERED:
                    raise


class McpOperations:
    """The handlers. All raise Refused."""

    def __init__(self, application: Application) -> None:
        self._application = application

    def by_operation(self) -> Handlers:
        """Return the handlers by their operations."""
        return {
            SPAWN_RUN: self.spawn,
            STREAM_USER_RUN_STATES: self.run_states,
            HELP: self.help,
        }

    async def spawn(self, call: Call[SpawnBody]) -> Answer[SpawnResult]:
        """Start a run, or go on with the one of an earlier attempt, and wait for its end or for a question."""
        under_way, caller = current_call.get() or CallUnderWay(), call.principal
        if under_way.resumed_run:
            outcome, stream = await self._resume(caller, under_way)
        else:
            started = await start_run(self._application, caller, call.input)
            outcome, stream = started_outcome(started), started.stream
        under_way.run_id = outcome.run_id
        wait_ms = call.input.timeout_ms or limits.BATCH_WAIT_MS
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._follow(caller, stream, outcome, under_way)
        except TimeoutError:
            await self._application.control.cancel_run(caller, outcome.run_id, "the time of the call is over")
            outcome.status, outcome.error = "timeout", f"the run was cancelled after {wait_ms} ms"
        finally:
            stream.close()
        return Answer(value=outcome_json(outcome))

    async def _resume(self, caller: Caller, under_way: CallUnderWay) -> tuple[SpawnOutcome, RunStream]:
        application, run_id = self._application, under_way.resumed_run
        _require_read(caller)
        row = await application.queries.run(caller, run_id)
        await answer_questions(application, caller, run_id, under_way.answers)
        outcome = SpawnOutcome(status="running", agent_id=row.agent_id, run_id=row.run_id, session_id=row.session_id)
        return outcome, await application.queries.stream(caller, run_id)

    async def _follow(self, caller: Caller, stream: RunStream, outcome: SpawnOutcome, under_way: CallUnderWay) -> None:
        """Follow a run until it has ended, or waits for a person."""
        builder = OutcomeBuilder(outcome)
        while outcome.status == "running" and (chunks := await stream.next()) is not None:
            for chunk in chunks:
                builder.add_frame(chunk)
                event = {"type": chunk.type, **orjson.loads(chunk.data)}
                await under_way.tell(outcome.run_id, outcome.agent_id, event)
            if under_way.is_stopped_by_question:
                _require_read(caller)
                # The frames of an earlier attempt have questions that are answered further on.
                under_way.open_questions = await open_questions(self._application, caller, outcome.run_id)
                if under_way.open_questions:
                    return

    async def run_states(self, call: Call[RunStatesOfUser]) -> Answer[RunStatesSeen]:
        """Return the changes that follow, as many as are asked for or come in time."""
        asked = call.input
        criteria = StateFilter(user_id=asked.user_id, statuses=frozenset(asked.statuses), agent=asked.agent)
        stream = self._application.run_states.follow(call.principal, criteria)
        seen: list[dict[str, Any]] = []
        try:
            async with asyncio.timeout(asked.timeout_ms / 1_000):
                while len(seen) < asked.max_events and (chunks := await stream.next()) is not None:
                    seen += [orjson.loads(chunk.data) for chunk in chunks if chunk.type == "run_state"]
        except TimeoutError:
            pass
        finally:
            stream.close()
        return Answer(value=RunStatesSeen(events=seen[: asked.max_events]))

    async def help(self, call: Call[Help]) -> Answer[HelpText]:
        """Return a topic, or the names of all."""
        topics = load_help_topics()
        topic = topics.find(call.input.topic) if call.input.topic else None
        if call.input.topic and topic is None:
            raise Refused("not_found", f"there is no topic {call.input.topic!r}")
        return Answer(value=HelpText(topics=[*topics.names], text="" if topic is None else topic.content))


def _require_read(caller: Caller) -> None:
    """Raise Refused(insufficient_scope) unless the caller may read runs too.

    It depends on the content: a call that waits for the end of its run needs no right to read, one that ends with a
    question of the run, or resumes with the answer, does.
    """
    require_access(caller, streams.FOLLOW_RUN)
