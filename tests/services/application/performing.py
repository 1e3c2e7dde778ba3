"""Operations as a test asks for them: over dispatch, as every transport does."""

from typing import Any

from loomlog.services.core.access.decide import Caller
from loomlog.services.core.operations import Answer, AnyOperation
from tests.services.application.world import World


async def perform(made: World, operation: AnyOperation, caller: Caller, **fields: Any) -> Answer[Any]:
    """Carry out an operation with these fields."""
    return await made.layer.dispatch.request(operation, caller, fields)
