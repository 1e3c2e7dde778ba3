"""The handlers of the operations on definitions, the same for requests and tool calls.

    members of a tenant    the definitions of the tenant
    administrators         the shared ones too, and other tenants
    agents                 what their definition lets them author

Before: services.py. After: operations.py, batches.py, queries.py, history.py, evaluations.py, volumes.py.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from loomlog.connectors.definitions import KINDS, Kind
from loomlog.connectors.errors import ConnectorError, describe_unreachable
from loomlog.connectors.tools.volume_folders import FolderProblem
from loomlog.services.core.operations import Answer, AnyOperation, Call, Effect, Handler, Handlers, OperationCaller
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.definition import evaluation_api, kind_api, query_api, volume_api
from loomlog.services.families.definition.author import Author, author_of, definition_tenant
from loomlog.services.families.definition.batches import DefinitionBatches
from loomlog.services.families.definition.evaluations import Evaluations
from loomlog.services.families.definition.history import DefinitionHistory
from loomlog.services.families.definition.operations import DefinitionOperations, refusing
from loomlog.services.families.definition.queries import DefinitionQueries
from loomlog.services.families.definition.volumes import VolumeOperations
from loomlog.services.stream.entities.reads import PositionNotRead

log = logging.getLogger(__name__)

FOLDER_PROBLEM = "its folder cannot be made or removed on this server: an administrator finds the reason in its log"
RETRY_S = 1
OfKind = Callable[[Kind, Any, Author], Awaitable[Answer[Any]]]


class DefinitionHandlers:
    """Handlers by their operations. All raise Refused and Unavailable."""

    def __init__(
        self,
        operations: DefinitionOperations,
        queries: DefinitionQueries,
        history: DefinitionHistory,
        evaluations: Evaluations,
        volumes: VolumeOperations,
    ) -> None:
        self._operations = operations
        self._batches = DefinitionBatches(operations)
        self._queries = queries
        self._history = history
        self._evaluations = evaluations
        self._volumes = volumes

    def by_operation(self) -> Handlers:
        """Return the handlers by their operations."""
        return {**self._of_kinds(), **self._of_all_kinds(), **self._of_evaluations(), **self._of_volumes()}

    # --- kinds -------------------------------------------------------------------------------------------------------

    def _of_kinds(self) -> dict[AnyOperation, Handler]:
        operations = self._operations
        by_op: Mapping[str, OfKind] = {
            "create": operations.create,
            "fork": operations.fork,
            "get": operations.get,
            "list": operations.list,
            "promote": operations.promote,
            "rollback": operations.rollback,
            "retire": operations.retire,
            "delete": operations.delete,
            "verify": operations.verify,
            "render_diagram": operations.render_diagram,
            "add_hook": operations.add_hook,
            "remove_hook": operations.remove_hook,
            "rediscover": operations.rediscover,
        }
        handlers: dict[AnyOperation, Handler] = {}
        for kind in KINDS.values():
            for op, operation in kind_api.KIND_OPERATIONS[kind.name].items():
                handlers[operation] = self._of_kind(kind, operation, by_op[op])
            handlers[kind_api.LIST_NAMES[kind.name]] = self._names_of(kind)
        return handlers

    def _of_kind(self, kind: Kind, operation: AnyOperation, carry_out: OfKind) -> Handler:
        async def handle(call: Call[Any]) -> Answer[Any]:
            with refusing():
                answer = await carry_out(kind, call.input, definition_author(call))
            if operation.effect is not Effect.READ:
                await self._operations.changed(kind, answer.value)
            return answer

        return handle

    def _names_of(self, kind: Kind) -> Handler:
        async def handle(call: Call[Any]) -> Answer[kind_api.DefinitionNames]:
            is_everywhere = call.caller.is_admin and not call.caller.is_tenant_named
            tenant = None if is_everywhere else definition_caller(call).tenant
            return Answer(value=self._operations.names(kind, tenant))

        return handle

    # --- all kinds ---------------------------------------------------------------------------------------------------

    def _of_all_kinds(self) -> dict[AnyOperation, Handler]:
        return {
            kind_api.APPLY: self._apply,
            kind_api.LIST_LIBRARY: self._library,
            query_api.LIST: self._list,
            query_api.LIST_PAST: self._past,
            query_api.GET: self._show,
            query_api.COMPARE: self._compare,
            query_api.GET_LINEAGE: self._lineage,
        }

    async def _apply(self, call: Call[kind_api.DefinitionBatch]) -> Answer[kind_api.AppliedDefinitions]:
        with refusing():
            return await self._batches.apply(call.input, definition_author(call))

    async def _library(self, call: Call[kind_api.LibraryList]) -> Answer[kind_api.Library]:
        return Answer(value=self._queries.library(call.input.shelf, definition_caller(call).tenant))

    async def _list(self, call: Call[query_api.DefinitionFilter]) -> Answer[query_api.DefinitionList]:
        return Answer(value=self._queries.list(call.input, definition_caller(call)))

    async def _past(self, call: Call[query_api.DefinitionPast]) -> Answer[query_api.DefinitionsAt]:
        with reading():
            return Answer(value=await self._history.past(call.input, definition_caller(call).tenant))

    async def _show(self, call: Call[query_api.DefinitionShow]) -> Answer[query_api.Definition]:
        with reading():
            return Answer(value=await self._queries.show(call.input.def_id, definition_caller(call)))

    async def _compare(self, call: Call[query_api.DefinitionCompare]) -> Answer[query_api.DefinitionDiff]:
        with reading():
            return Answer(value=await self._queries.diff(call.input, definition_caller(call)))

    async def _lineage(self, call: Call[query_api.DefinitionLineageOf]) -> Answer[query_api.DefinitionLineage]:
        return Answer(value=self._queries.lineage(call.input, definition_caller(call)))

    # --- judgements --------------------------------------------------------------------------------------------------

    def _of_evaluations(self) -> dict[AnyOperation, Handler]:
        evaluations = self._evaluations

        async def submit(call: Call[evaluation_api.EvaluationSubmit]) -> Answer[evaluation_api.EvaluationSubmitted]:
            with refusing():
                return await evaluations.submit(call.input, definition_author(call))

        def reader(read: Callable[..., Awaitable[Answer[Any]]]) -> Handler:
            async def handle(call: Call[Any]) -> Answer[Any]:
                with refusing():
                    return await read(call.input, definition_author(call), call.caller.positions)

            return handle

        return {
            evaluation_api.SUBMIT: submit,
            evaluation_api.GET: reader(evaluations.get),
            evaluation_api.LIST_FOR_RUN: reader(evaluations.list_for_run),
            evaluation_api.LIST_FOR_DEFINITION: reader(evaluations.list_for_definition),
            evaluation_api.AGGREGATE: reader(evaluations.sum_up),
        }

    # --- volumes -----------------------------------------------------------------------------------------------------

    def _of_volumes(self) -> dict[AnyOperation, Handler]:
        volumes = self._volumes

        def of_author(carry_out: Callable[..., Awaitable[Answer[Any]]]) -> Handler:
            async def handle(call: Call[Any]) -> Answer[Any]:
                author = definition_author(call)
                with refusing(), _hiding_folders(author):
                    return await carry_out(call.input, author)

            return handle

        async def list_all(call: Call[Any]) -> Answer[volume_api.Volumes]:
            caller = definition_caller(call)
            return Answer(value=volumes.list_all(caller.tenant, is_admin=caller.is_admin))

        async def list_ephemeral(call: Call[Any]) -> Answer[volume_api.EphemeralVolumes]:
            caller = definition_caller(call)
            return Answer(value=volumes.list_ephemeral(caller.tenant, is_admin=caller.is_admin))

        return {
            volume_api.CREATE: of_author(volumes.create),
            volume_api.GET: of_author(volumes.get),
            volume_api.LIST: of_author(volumes.list_made),
            volume_api.DELETE: of_author(volumes.delete),
            volume_api.PURGE: of_author(volumes.purge),
            volume_api.LIST_ALL: list_all,
            volume_api.LIST_EPHEMERAL: list_ephemeral,
        }


def definition_caller(call: Call[Any]) -> OperationCaller:
    """Return the caller with the tenant whose definitions are meant."""
    caller = call.caller
    return replace(caller, tenant=definition_tenant(caller.tenant, is_admin=caller.is_admin))


def definition_author(call: Call[Any]) -> Author:
    """Return the caller as an author in the tenant whose definitions are meant."""
    return author_of(replace(call, caller=definition_caller(call)))


@contextmanager
def reading() -> Iterator[None]:
    """Turn a read model that has not read far enough, or does not answer, into Refused and Unavailable."""
    try:
        yield
    except PositionNotRead as error:
        raise Refused("definitions_unavailable", str(error), retry_after_s=RETRY_S) from error
    except ConnectorError as error:
        raise Unavailable(describe_unreachable("the read models", error)) from error


@contextmanager
def _hiding_folders(author: Author) -> Iterator[None]:
    """Refuse what the disk does not do; only administrators see folders of the server."""
    try:
        yield
    except FolderProblem as problem:
        log.warning("volumes of %s: %s", author.tenant, problem)
        text = str(problem) if author.is_admin else FOLDER_PROBLEM
        raise Refused("invalid_definition", text) from problem
