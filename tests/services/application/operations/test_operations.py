from loomlog.services.application.dispatch import Dispatch
from loomlog.services.application.operations import APPLICATION_OPERATIONS, product_operations
from loomlog.services.application.operations.handlers import application_handlers
from loomlog.services.application.operations.process import PROCESS_OPERATIONS
from loomlog.services.cli.main import WRITTEN_GROUPS
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.access.rules import ANY_CALLER
from loomlog.services.core.error_codes import STATUS_BY_CODE
from loomlog.services.core.operations import Answer, Call, Effect, NoInput, NoOutput, Operation
from tests.services.application.world import ACME, world


async def test_every_operation_of_the_application_has_a_handler() -> None:
    async with world() as made:
        handlers = set(application_handlers(made.layer))
    assert handlers == set(APPLICATION_OPERATIONS)


def test_every_operation_of_the_application_is_in_the_product_with_codes_that_clients_know_and_a_group() -> None:
    for operation in (*PROCESS_OPERATIONS, *APPLICATION_OPERATIONS):
        assert operation in product_operations()
        assert set(operation.codes) <= set(STATUS_BY_CODE), operation.name
        assert operation.family in WRITTEN_GROUPS, operation.name


async def test_a_handler_knows_who_sent_the_request() -> None:
    senders: list[Caller] = []

    async def handle(call: Call[NoInput]) -> Answer[NoOutput]:
        senders.append(call.principal)
        return Answer(value=NoOutput())

    operation = Operation(
        name="probe.ask", summary="Ask.", input=NoInput, output=NoOutput, access=ANY_CALLER, effect=Effect.READ
    )
    await Dispatch({operation: handle}, clock_ms=lambda: 1, new_token=lambda: "t").request(operation, ACME, {})
    assert senders == [ACME]
