"""Judgements of runs for callers outside of runs, who may judge any run of their tenant.

Before: services/api/definition_endpoints.py. After: services/families/definition/evaluations.py, which the Evaluation
tool shares.
"""

from typing import Any

from loomlog.services.application.authentication import require_member, require_scope
from loomlog.services.application.definitions import Definitions
from loomlog.services.application.queries.read_models import ReadModels
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.access.scopes import TENANT
from loomlog.services.families.definition.evaluations import TOOL, Evaluations, JudgedRun, judged_run
from loomlog.services.families.definition.operations import Reply


class RunEvaluations:
    """The use cases. All methods raise Refused."""

    def __init__(self, definitions: Definitions, evaluations: Evaluations) -> None:
        self._definitions = definitions
        self._evaluations = evaluations

    async def operate(self, caller: Caller, body: Any, *, tenant: str = "") -> Reply:
        """Carry out an operation; `body` is that of the tool. Refusals have the code tool_refused, with a reason."""
        require_scope(caller, TENANT)
        require_member(caller)
        author = self._definitions.author(caller, "evaluation", tenant)
        reply: Reply = await self._definitions.refusing(TOOL, self._evaluations.run(body, author))
        return reply


class ReadModelRuns:
    """Protocol loomlog.services.families.definition.evaluations.JudgedRuns; raises Refused."""

    def __init__(self, read_models: ReadModels) -> None:
        self._read_models = read_models

    async def find(self, tenant: str, run_id: str) -> JudgedRun | None:
        row = await self._read_models.run(tenant, run_id)
        return None if row is None else judged_run(row)
