"""Every operation times nine callers, over the dispatch that all transports share (those: test_transports.py).

What is expected stands in callers.tsv, which is read by people: an operation without a line fails, and so does a line
that does not follow from the access that the operation declares. The callers have real tokens: minted, of a file, of an
identity provider. Handlers are replaced, so what answers is the check before them. Routes: services/api/access.tsv.

    python -m tests.services.operations.test_callers     writes the lines anew; read every change
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from loomlog.connectors.crypto.operator_tokens import Peppers
from loomlog.services.application.authentication import Authenticator
from loomlog.services.application.dispatch import Dispatch
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.access.scopes import ADMIN
from loomlog.services.core.operation_input import field_schemas, required_fields
from loomlog.services.core.operations import Answer, AnyOperation, Call
from loomlog.services.core.refusals import Refused
from loomlog.services.families.identity.services import IdentityOptions
from tests.connectors.identity_providers.provider import Provider, providers_of
from tests.connectors.storage.memory import MemoryRequestKeys
from tests.services.api.serving import Served, served
from tests.services.api.test_access import HELD
from tests.services.application.world import ACME, ADMIN_CALLER, GLOBEX, NOW_MS, READER
from tests.services.application.world import tokens as world_tokens
from tests.services.operations.cases import GRPC_OPERATIONS, MCP_OPERATIONS, OPERATIONS, example

FILE = Path(__file__).parent / "callers.tsv"
HEAD = """# What each caller gets of each operation; compared with declarations by test_callers.py. Read every change.
# yes: it is carried out in the caller's tenant; all: in all tenants; own: on the caller's own data alone;
# globex: asked for acme it is refused, or it names no tenant and is carried out in the caller's own.
"""
ANONYMOUS = Caller(name="", tenant="", subject="", scopes=frozenset())
ISOLATED = "ivo"
STATUSES = {"unauthorized": "401", "insufficient_scope": "403"}
INPUTS: Mapping[str, Mapping[str, Any]] = {"run.spawn_many": {"spawns": [{"agent": "soaker", "prompt": "go"}]}}
"""Inputs of operations that want more than their schema says."""
CALLERS = ("administrator", "operator", "member", "reader", "isolated", "foreign", "retired", "nobody", "oidc")
SCOPES: Mapping[str, frozenset[str]] = {
    "administrator": frozenset({"substrate:admin"}),
    "operator": frozenset({"substrate:tenant"}),
    "member": frozenset({"runs:create", "runs:read", "channel:publish", "channel:read"}),
    "reader": frozenset({"runs:read"}),
    "isolated": frozenset({"substrate:user"}),
    "foreign": frozenset({"substrate:tenant"}),
    "oidc": frozenset({"runs:create", "runs:read", "channel:publish", "channel:read"}),
}
"""What the callers hold; those of users follow from the access mode, and that is what the tests find too."""


class Here:
    """The tokens of the callers, and the dispatch with handlers that record."""

    def __init__(self, authenticator: Authenticator, tokens: Mapping[str, str], operations: Sequence[AnyOperation]):
        self.operations = {one.name: one for one in operations}
        self.calls: list[Call[Any]] = []
        self._authenticator, self._tokens = authenticator, tokens
        handlers = dict.fromkeys(operations, self._record)
        self._dispatch = Dispatch(handlers, clock_ms=lambda: NOW_MS, new_token=lambda: "t")

    async def _record(self, call: Call[Any]) -> Answer[Any]:
        self.calls.append(call)
        return Answer(value=None)

    async def caller(self, name: str) -> Caller:
        """Return the caller of a name. Raises Refused."""
        token = self._tokens.get(name)
        return await self._authenticator.authenticate(f"Bearer {token}" if token else None)

    async def outcome(self, name: str, operation: AnyOperation) -> str:
        """Return what a caller gets of an operation, as in callers.tsv."""
        schemas = field_schemas(operation.input)
        fields = {field: example(schemas[field]) for field in required_fields(operation.input)}
        fields |= INPUTS.get(operation.name, {})
        takes_tenant = any(http.takes_tenant for http in operation.http)
        tenant = "acme" if name == "foreign" and takes_tenant else ""
        self.calls.clear()
        try:
            caller = ANONYMOUS if operation.access.is_public else await self.caller(name)
            await self._dispatch.request(operation, caller, fields, tenant=tenant)
        except Refused as refused:
            return STATUSES.get(refused.code, f"{refused.code}: {refused.message}")
        (call,) = self.calls
        if call.caller.is_isolated:
            assert (call.caller.tenant, call.caller.subject) == ("acme", ISOLATED)
            return "own"
        return {"acme": "yes", "": "all"}.get(call.caller.tenant, call.caller.tenant)


def derived(name: str, operation: AnyOperation) -> str:
    """Return what a caller must get by the access that an operation declares, written once more."""
    access, scopes = operation.access, SCOPES.get(name, frozenset())
    if access.is_public:
        return "all"
    if name in ("retired", "nobody"):
        return "401"
    held = scopes | {included for scope in scopes for included in HELD[scope]}
    needed = set(access.scopes)
    if needed and not (needed & held if access.is_any else needed <= held):
        return "403"
    if name == "isolated":
        return "own" if access.takes_isolated else "403"
    if name == "foreign":
        return "403" if any(http.takes_tenant for http in operation.http) else "globex"
    return "all" if name == "administrator" and operation.spans_tenants else "yes"


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def here(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Here]:
    async with installation(tmp_path_factory.mktemp("callers")) as made:
        yield made


@asynccontextmanager
async def installation(folder: Path) -> AsyncIterator[Here]:
    provider = Provider()
    gate = Authenticator(world_tokens(), providers=providers_of(provider))
    options = [IdentityOptions(peppers=Peppers(keys=(b"pepper",)), grace_s=60)]
    async with served(folder, authenticator=gate, family_options=options, request_keys=MemoryRequestKeys()) as made:
        retired = await minted(made, "gone", "runs:read")
        tokens = {
            "administrator": (await minted(made, "root", ADMIN))["token"],
            "operator": f"{ACME.name}-token",
            "member": await token_of_user(made, "mia", "tenant"),
            "reader": f"{READER.name}-token",
            "isolated": await token_of_user(made, ISOLATED, "isolated"),
            "foreign": f"{GLOBEX.name}-token",
            "retired": retired["token"],
            "oidc": provider.token(),
        }
        await asked(made, ADMIN_CALLER, "/v1/_operatortokendef", op="retire", def_id=retired["def_id"])
        yield Here(gate, tokens, (*OPERATIONS, *MCP_OPERATIONS, *GRPC_OPERATIONS))


async def asked(made: Served, caller: Caller, path: str, **body: Any) -> dict[str, Any]:
    answer = await made.client(caller).post(path, json=body)
    assert answer.is_success, answer.text
    value: dict[str, Any] = answer.json()
    return value


async def minted(made: Served, name: str, scope: str) -> dict[str, Any]:
    fields = {"op": "create", "name": name, "tenant_id": "acme", "scopes": [scope]}
    return await asked(made, ADMIN_CALLER, "/v1/_operatortokendef", **fields)


async def token_of_user(made: Served, subject: str, access_mode: str) -> str:
    await asked(made, ACME, "/v1/_users", subject=subject, access_mode=access_mode)
    return str((await asked(made, ACME, f"/v1/_users/{subject}/tokens"))["token"])


def read_lines() -> dict[str, dict[str, str]]:
    """Return what callers get, by operation and caller."""
    rows = [line.split("\t") for line in FILE.read_text().splitlines() if not line.startswith("#")]
    return {name: dict(zip(CALLERS, cells, strict=True)) for name, *cells in rows[1:]}


LINES = read_lines() if FILE.exists() else {}


async def test_each_operation_has_its_line_which_follows_from_its_declaration(here: Here) -> None:
    assert set(here.operations) == set(LINES)
    for name, operation in here.operations.items():
        assert {caller: derived(caller, operation) for caller in CALLERS} == LINES[name], name


@pytest.mark.parametrize("name", CALLERS)
async def test_a_caller_gets_what_the_table_says(here: Here, name: str) -> None:
    found = {operation: await here.outcome(name, one) for operation, one in here.operations.items()}
    assert found == {operation: cells[name] for operation, cells in LINES.items()}


async def test_the_callers_hold_what_is_written_here(here: Here) -> None:
    for name, scopes in SCOPES.items():
        caller = await here.caller(name)
        assert (caller.scopes, caller.tenant) == (scopes, "globex" if name == "foreign" else "acme"), name


async def write_lines() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with installation(Path(folder)) as made:
            rows = [
                "\t".join((name, *(derived(caller, one) for caller in CALLERS)))
                for name, one in sorted(made.operations.items())
            ]
    FILE.write_text(HEAD + "\n".join(("\t".join(("operation", *CALLERS)), *rows)) + "\n")


if __name__ == "__main__":
    asyncio.run(write_lines())
