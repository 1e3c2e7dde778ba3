"""A family with typed operations in one file: documents that are put, got and listed.

It runs as the family of ../counter does. Each operation is declared once, and served over HTTP, in the command line and
as a tool of agents. In the top folder of a clone, after `make down` if a stack runs there:

    export LOOMLOG_FAMILIES=documents PYTHONPATH=docs/examples/documents
    loomlog up --detach
    loomlog document put plan --text "Ship it."
    curl localhost:8787/v1/_documents/plan
"""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from loomlog.schemas.generated.document_commands import PutDocument
from loomlog.schemas.generated.document_events import DocumentKept
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.records import Value
from loomlog.services.core.access.rules import requires
from loomlog.services.core.access.scopes import RUNS_CREATE, RUNS_READ
from loomlog.services.core.families import WHOLE_HISTORY, At, Family, Rules, inner_commands
from loomlog.services.core.operations import (
    PRINTABLE,
    Answer,
    Call,
    Effect,
    Http,
    Input,
    Operation,
    Output,
    Tag,
    Tool,
    ToolOperation,
)
from loomlog.services.core.refusals import Refused, decided_refusal
from loomlog.services.families.opening import FamilyContext, FamilyServices
from loomlog.services.families.operation import ask_owner

NAME, WAIT_S = "document", 10.0
TAG = Tag(name="Documents", description="Texts that agents and people keep.")
TOOL = Tool(name="Document", description="Texts that are kept: op put keeps one, get reads one, list names them.")

# --- rules (state.py, decide.py) -------------------------------------------------------------------------------------


class Document(Value, frozen=True):
    """State of a document."""

    text: str = ""
    revision: int = 0


def decide(document: Document, command: PutDocument, at: At) -> Sequence[DocumentKept]:
    """Return the event of a document that is put."""
    return [DocumentKept(text=command.text, revision=document.revision + 1)]


def evolve(document: Document, event: DocumentKept, at_ms: int) -> Document:
    """Return the document after an event."""
    return Document(text=event.text, revision=event.revision)


# --- operations (api.py) ---------------------------------------------------------------------------------------------

Name = Annotated[str, Meta(min_length=1, max_length=200, pattern=PRINTABLE, description="Name of the document.")]


class DocumentPut(Input, frozen=True, kw_only=True):
    name: Name
    text: Annotated[str, Meta(max_length=65_536, description="What it says.")]


class DocumentNamed(Input, frozen=True, kw_only=True):
    name: Name


class DocumentList(Input, frozen=True, kw_only=True):
    prefix: Annotated[str, Meta(max_length=200, description="Only names that begin with this text.")] = ""
    limit: Annotated[int, Meta(ge=1, le=200, description="Most names of one answer.")] = 50


class DocumentRow(Output, frozen=True, kw_only=True):
    name: str
    text: str
    revision: Annotated[int, Meta(description="How often it was kept.")]


class DocumentNames(Output, frozen=True, kw_only=True):
    names: list[str]


PUT = Operation(
    name="document.put",
    summary="Keep a document, in place of the one of its name.",
    input=DocumentPut,
    output=DocumentRow,
    access=requires(RUNS_CREATE),
    effect=Effect.WRITE,
    tag=TAG,
    http=(Http(route="PUT /v1/_documents/{name:path}"),),
    tool=ToolOperation(tool="Document", op="put"),
)
GET = Operation(
    name="document.get",
    summary="Get a document.",
    input=DocumentNamed,
    output=DocumentRow,
    access=requires(RUNS_READ),
    effect=Effect.READ,
    tag=TAG,
    http=(Http(route="GET /v1/_documents/{name:path}"),),
    tool=ToolOperation(tool="Document", op="get"),
)
LIST = Operation(
    name="document.list",
    summary="List the documents by name.",
    input=DocumentList,
    output=DocumentNames,
    access=requires(RUNS_READ),
    effect=Effect.READ,
    tag=TAG,
    http=(Http(route="GET /v1/_documents"),),
    tool=ToolOperation(tool="Document", op="list"),
)

# --- handlers (handlers.py) ------------------------------------------------------------------------------------------


class DocumentHandlers:
    """One method for each operation, whichever transport asked."""

    def __init__(self, context: FamilyContext) -> None:
        self._commands, self._reads, self._decrypt = context.commands, context.reads, context.decrypt

    async def put(self, call: Call[DocumentPut]) -> Answer[DocumentRow]:
        """Keep a document."""
        command = PutDocument(envelope=call.envelope(), name=call.input.name, text=call.input.text)
        answer = await ask_owner(self._commands, command, wait_s=WAIT_S)
        event = answer.events[-1]
        if isinstance(event, CommandRefused):
            raise decided_refusal(event.code, event.message)
        row = DocumentRow(name=command.name, text=command.text, revision=event.revision)
        return Answer(value=row, positions=(answer.position,))

    async def get(self, call: Call[DocumentNamed]) -> Answer[DocumentRow]:
        """Return a document."""
        caller, name = call.caller, call.input.name
        row = await self._reads.show(NAME, caller.tenant, name, positions=caller.positions)
        if row is None:
            raise Refused("not_found", f"there is no document {name!r}")
        document = row.entity.state
        text = await self._decrypt(document.text, caller.tenant)
        return Answer(value=DocumentRow(name=name, text=text, revision=document.revision))

    async def list(self, call: Call[DocumentList]) -> Answer[DocumentNames]:
        """Return the names of documents."""
        asked, caller = call.input, call.caller
        rows = await self._reads.list(
            NAME, caller.tenant, prefix=asked.prefix, limit=asked.limit, positions=caller.positions
        )
        return Answer(value=DocumentNames(names=[row.name for row in rows]))


# --- opening (services.py) -------------------------------------------------------------------------------------------


def open_family(context: FamilyContext) -> FamilyServices:
    """Open documents in a process, api or runtime."""
    handlers = DocumentHandlers(context)
    return FamilyServices(handlers={PUT: handlers.put, GET: handlers.get, LIST: handlers.list})


# --- declaration (__init__.py) ---------------------------------------------------------------------------------------

_command = inner_commands(lambda command: str(command.name))
FAMILY = Family(
    name=NAME,
    summary="A text that is kept under a name.",
    rules=Rules(state=Document, initial=lambda aggregate: Document(), decide=decide, evolve=evolve, version=1),
    lifecycle=WHOLE_HISTORY,
    commands=(_command(PutDocument, "put", "Keep a document."),),
    operations=(PUT, GET, LIST),
    tools=(TOOL,),
    services=__name__,
)
