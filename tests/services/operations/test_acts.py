"""What operators change is an act, of every operation and every route: nothing declares it, and nothing forgets it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from loomlog.services.api.operation_routes import operation_routes
from loomlog.services.api.routes import ROUTES
from loomlog.services.application.dispatch import Dispatch, act_target
from loomlog.services.application.operations import product_operations
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.access.scopes import ADMIN, RUNS_CREATE, TENANT
from loomlog.services.core.operations import Answer, AnyOperation, Call, Change, Effect
from loomlog.services.core.refusals import Refused
from loomlog.services.families.ports.acts import Act
from tests.services.api.serving import served
from tests.services.application.world import NOW_MS, tokens
from tests.services.operations.cases import CASES, OPERATIONS, Case, route_of
from tests.services.operations.test_requests import Here, ScopedCallers

NO_ACTS = {"channel.publish_system", "definition.evaluation_submit"}
"""What changes something with the access of operators, and is no act: messages and judgements are data."""
READS = {"verify_log", "test_tenant_webhook"}
"""Routes that read with POST."""
ADMINISTRATIVE = {ADMIN, TENANT}
ACTS = [case for case in CASES if case.operation.records_act]


class Recorder:
    """What the dispatch tells of acts, and what happened in between (in place of ActLog)."""

    def __init__(self) -> None:
        self.happened: list[Any] = []

    async def carry_out(self, act: Act, work: Callable[[], Awaitable[Any]], change: Change) -> Any:
        self.happened.append(act)
        try:
            return await work()
        finally:
            self.happened.append("end")

    def note_refusal(self, operation: str, caller: Caller, tenant: str, code: str, target: str = "") -> None:
        self.happened.append((operation, caller.subject, tenant, code))


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def installation(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Here, Recorder]]:
    recorder = Recorder()

    async def handle(call: Call[Any]) -> Answer[Any]:
        recorder.happened.append("work")
        raise Refused("not_found", "it is recorded")

    folder = tmp_path_factory.mktemp("acts")
    async with served(folder, routes=operation_routes(OPERATIONS)) as made:
        made.service.authenticator = ScopedCallers(tokens())
        acts: Any = recorder
        made.world.layer.acts = acts
        made.world.layer.dispatch = made.service.process_dispatch = Dispatch(
            dict.fromkeys(OPERATIONS, handle), clock_ms=lambda: NOW_MS, new_token=made.world.token, acts=acts
        )
        yield Here(made.app), recorder


def test_what_changes_something_with_the_access_of_operators_is_an_act() -> None:
    def is_expected(operation: AnyOperation) -> bool:
        changes = operation.effect is not Effect.READ and bool(ADMINISTRATIVE.intersection(operation.access.scopes))
        return changes and operation.name not in NO_ACTS

    wrong = [one.name for one in product_operations() if one.records_act is not is_expected(one)]
    assert not wrong
    assert set(NO_ACTS) <= {one.name for one in product_operations()}


def test_no_route_of_operators_changes_something_without_an_act() -> None:
    of_operations = {case.http.route for case in CASES}
    routes = [route for route in ROUTES if route.is_mutating and ADMINISTRATIVE.intersection(route.access.scopes)]
    forgotten = {route.operation_id for route in routes if not route.act and not route.own_act}
    reading = {case.http.route for case in CASES if not case.operation.records_act}
    by_id = {route.operation_id: f"{route.method} {route.path}" for route in routes}
    assert {name for name in forgotten if by_id[name] not in reading} == READS
    by_hand = {route.operation_id for route in routes if route.own_act}
    assert not {name for name in by_hand if by_id[name] in of_operations}, "the dispatch has them already"
    assert by_hand == {"restore_snapshot_file", "import_run"}


@pytest.mark.parametrize("case", ACTS, ids=route_of)
async def test_every_act_is_recorded_before_its_handler_and_after_it(
    installation: tuple[Here, Recorder], case: Case
) -> None:
    here, recorder = installation
    recorder.happened.clear()
    await case.send(here.client(*case.access.scopes))
    act, work, end = recorder.happened
    assert (act.operation, act.tenant, act.caller.subject) == (case.operation.name, "acme", "ada")
    assert (work, end) == ("work", "end")


@pytest.mark.parametrize("case", ACTS, ids=route_of)
async def test_every_act_that_is_refused_before_it_begins_is_noted(
    installation: tuple[Here, Recorder], case: Case
) -> None:
    here, recorder = installation
    recorder.happened.clear()
    await case.send(here.client(RUNS_CREATE))
    (noted,) = recorder.happened
    name = case.operation.family if case.http.op else case.operation.name
    assert noted == (name, "ada", "acme", "insufficient_scope")


async def test_what_reads_or_is_of_members_is_no_act(installation: tuple[Here, Recorder]) -> None:
    here, recorder = installation
    recorder.happened.clear()
    for case in [case for case in CASES if case.operation in OPERATIONS and not case.operation.records_act]:
        await case.send(here.client(*case.access.scopes))
    assert set(recorder.happened) == {"work"}


@pytest.mark.parametrize(
    ("fields", "path_names", "target"),
    [
        ({"hook_id": "h_1", "name": "n"}, {"hook_id": "hook_id"}, "h_1"),
        ({"name": "n", "version": 3}, {}, "n"),
        ({"scope": "agent", "agent": "helper"}, {}, "helper agent"),
        ({"name": {"a": 1}}, {}, ""),
    ],
)
def test_the_target_is_what_the_path_names_or_else_the_usual_fields(
    fields: dict[str, Any], path_names: dict[str, str], target: str
) -> None:
    assert act_target(fields, path_names) == target
