"""Tasks of MCP's stateless era: a task is a run in the log, and no process remembers it.

    taskId          the run's id with the position of its first event: any process waits until its rows have that
                    event, so a task that was answered is found everywhere
    working         the run is live
    input_required  it has asked a question, or waits for the next text of its user
    completed       it has ended; the result is the one that spawn_run gives, a failed run's too
    cancelled       it was cancelled

Before: endpoint.py. After: operations.py, services/application/runs, services/application/queries/runs.py.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType

from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.projections.runs import RunRow
from loomlog.schemas.ids import ID_PATTERN
from loomlog.schemas.position import Position
from loomlog.services.api.mcp.operations import (
    SpawnBody,
    answer_questions,
    open_questions,
    start_run,
)
from loomlog.services.api.mcp.questions import Question, input_requests, response_of
from loomlog.services.application.application import Application
from loomlog.services.application.bodies.fields import model_fields
from loomlog.services.application.errors import bad_request
from loomlog.services.application.operations.streams import START_RUN
from loomlog.services.application.resources import clock_ms
from loomlog.services.application.runs.batch import OutcomeBuilder, SpawnOutcome, outcome_json
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.access.rules import own_data
from loomlog.services.core.access.scopes import RUNS_CREATE, RUNS_READ
from loomlog.services.core.operations import Answer, AnyOperation, Call, Effect, Handlers, Input, Operation, Output
from loomlog.services.core.refusals import Refused

POLL_INTERVAL_MS = 500
"""How often a client should ask: a turn of a model takes seconds."""
TASK_ID = re.compile(r"(r_[A-Za-z0-9_-]{1,126})\.([0-9]{1,9})\.([0-9]{1,18})\Z", re.ASCII)
NEXT_TEXT = "next-text"
"""Beginning of the key of a run's wait for the next text; the number of its event follows."""
WAITS_FOR_TEXT = "What should happen next?"

TaskId = Annotated[str, Meta(max_length=200, description="Id of the task.")]


class TaskNamed(Input, frozen=True, kw_only=True):
    """A task by its id."""

    taskId: TaskId  # noqa: N815 (the protocol's name)


class TaskAnswers(TaskNamed, frozen=True, kw_only=True):
    """Answers to what a task asks for."""

    inputResponses: Annotated[  # noqa: N815 (the protocol's name)
        dict[str, Any], Meta(max_length=64, description="The client's answers, by the keys of the requests.")
    ]


class TaskView(Output, frozen=True, kw_only=True):
    """A task with what its status needs."""

    task_id: str
    status: str
    created_at: str
    last_updated_at: str
    status_message: str | UnsetType = UNSET
    outcome: Any = UNSET
    """What spawn_run answers, of a task that is completed."""
    requests: dict[str, Any] | UnsetType = UNSET
    """What a task needs that has input_required."""


class TaskDone(Output, frozen=True, kw_only=True):
    """An acknowledgement."""

    position: Annotated[str, Meta(description="Position of what was written; empty: nothing was.")] = ""


START = Operation(
    name="task.start",
    summary="Start a run and answer once it is in the log.",
    input=model_fields(SpawnBody),
    output=TaskView,
    access=START_RUN,
    effect=Effect.WRITE,
)
GET = Operation(
    name="task.get",
    summary="Get the state of a task: of a run.",
    input=TaskNamed,
    output=TaskView,
    access=own_data(RUNS_READ),
    effect=Effect.READ,
)
UPDATE = Operation(
    name="task.update",
    summary="Answer what a task asks for.",
    input=TaskAnswers,
    output=TaskDone,
    access=own_data(RUNS_CREATE, RUNS_READ),
    effect=Effect.WRITE,
)
CANCEL = Operation(
    name="task.cancel",
    summary="Cancel a task: its run.",
    input=TaskNamed,
    output=TaskDone,
    access=own_data(RUNS_CREATE),
    effect=Effect.WRITE,
)
OPERATIONS: tuple[AnyOperation, ...] = (START, GET, UPDATE, CANCEL)
METHODS: Mapping[str, AnyOperation] = {"tasks/get": GET, "tasks/update": UPDATE, "tasks/cancel": CANCEL}


class TaskPlace(NamedTuple):
    """What the id of a task says."""

    run_id: str
    partition: int
    offset: int


class TaskOperations:
    """The handlers. All raise Refused; a task that there is not is not_found."""

    def __init__(self, application: Application) -> None:
        self._application = application

    def by_operation(self) -> Handlers:
        """Return the handlers by their operations."""
        return {START: self.start, GET: self.get, UPDATE: self.update, CANCEL: self.cancel}

    async def start(self, call: Call[SpawnBody]) -> Answer[TaskView]:
        """Start a run; its first event is in the log when this returns."""
        body = call.input
        if body.timeout_ms and not body.run_timeout_seconds:
            body = body.model_copy(update={"run_timeout_seconds": -(-body.timeout_ms // 1_000)})
        started = await start_run(self._application, call.principal, body)
        started.stream.close()
        first = Position.parse(started.position)
        at = format_rfc3339(call.issued_at_ms or clock_ms())
        task = TaskView(
            task_id=f"{started.run_id}.{first.partition}.{first.offset}",
            status="working",
            created_at=at,
            last_updated_at=at,
        )
        return Answer(value=task, positions=(started.position,))

    async def get(self, call: Call[TaskNamed]) -> Answer[TaskView]:
        """Return a task."""
        caller, task_id = call.principal, call.input.taskId
        row = await self._row(caller, task_id)
        view = TaskView(
            task_id=task_id,
            status=row.status if row.status == "cancelled" else "completed",
            created_at=format_rfc3339(row.started_at_ms),
            last_updated_at=format_rfc3339(row.last_event_at_ms),
        )
        if row.status == "running":
            return Answer(value=await self._live(caller, row, view))
        if row.status == "cancelled":
            message = row.stop_reason or UNSET
            return Answer(value=msgspec.structs.replace(view, status_message=message))
        return Answer(value=msgspec.structs.replace(view, outcome=outcome_json(await self._outcome(caller, row))))

    async def update(self, call: Call[TaskAnswers]) -> Answer[TaskDone]:
        """Answer questions, or give the next text; what the task does not ask for any more is passed over."""
        caller, answers = call.principal, dict(call.input.inputResponses)
        row = await self._row(caller, call.input.taskId)
        text = next((answers.pop(key) for key in list(answers) if key.startswith(NEXT_TEXT)), None)
        await answer_questions(self._application, caller, row.run_id, answers)
        position = ""
        if text is not None and f"{NEXT_TEXT}-{row.last_seq}" in call.input.inputResponses and row.parked:
            try:
                response = response_of(text)
            except ValueError as error:
                raise bad_request(f"inputResponses.{NEXT_TEXT}: {error}") from error
            if response is not None and response.answer:
                sent = await self._application.control.post_input(caller, row.run_id, response.answer)
                position = sent.position
        return Answer(value=TaskDone(position=position), positions=(position,) if position else ())

    async def cancel(self, call: Call[TaskNamed]) -> Answer[TaskDone]:
        """Cancel the run of a task; one that has ended stays as it is."""
        place = await self._place(call.input.taskId)
        try:
            result = await self._application.control.cancel_run(call.principal, place.run_id, "the task was cancelled")
        except Refused as refused:
            if refused.code != "cancel_pending":  # then the cancel is in the log
                raise
            return Answer(value=TaskDone())
        return Answer(value=TaskDone(position=result.position), positions=(result.position,))

    async def _place(self, task_id: str) -> TaskPlace:
        """Return what an id says, once this process reads that far. Raises Refused."""
        match = TASK_ID.match(task_id)
        if match is None or not ID_PATTERN.match(match[1]):
            raise Refused("not_found", f"there is no task {task_id[:80]}")
        place = TaskPlace(match[1], int(match[2]), int(match[3]))
        barrier = self._application.barrier
        try:
            await barrier.wait_for([barrier.token(place.partition, place.offset)])
        except Refused as refused:
            if refused.code == "bad_request":  # no record has ever been there
                raise Refused("not_found", f"there is no task {task_id[:80]}") from refused
            raise
        return place

    async def _row(self, caller: Caller, task_id: str) -> RunRow:
        place = await self._place(task_id)
        return await self._application.queries.run(caller, place.run_id)

    async def _live(self, caller: Caller, row: RunRow, view: TaskView) -> TaskView:
        requests: dict[str, Any] = {}
        if row.open_interrupts:
            requests = input_requests(await open_questions(self._application, caller, row.run_id))
        elif row.parked:
            requests = input_requests((Question(f"{NEXT_TEXT}-{row.last_seq}", WAITS_FOR_TEXT),))
        if requests:
            return msgspec.structs.replace(view, status="input_required", requests=requests)
        return msgspec.structs.replace(view, status="working", status_message=f"{row.iterations} turns so far")

    async def _outcome(self, caller: Caller, row: RunRow) -> SpawnOutcome:
        """Return the outcome of a run that has ended, from its stored frames."""
        outcome = SpawnOutcome(status="running", agent_id=row.agent_id, run_id=row.run_id, session_id=row.session_id)
        builder = OutcomeBuilder(outcome)
        stream = await self._application.queries.stream(caller, row.run_id)
        try:
            while (chunks := await stream.next()) is not None:
                for chunk in chunks:
                    builder.add_frame(chunk)
        finally:
            stream.close()
        return outcome


def task_json(view: TaskView) -> dict[str, Any]:
    """Return a task in the form of the protocol, without what makes it a result."""
    task: dict[str, Any] = {
        "taskId": view.task_id,
        "status": view.status,
        "createdAt": view.created_at,
        "lastUpdatedAt": view.last_updated_at,
        "ttlMs": None,
        "pollIntervalMs": POLL_INTERVAL_MS,
    }
    if view.status_message is not UNSET:
        task["statusMessage"] = view.status_message
    if view.requests is not UNSET:
        task["inputRequests"] = view.requests
    return task
