"""Channels that are declared at run time: create, update, delete.

A channel of a file is changed there. A name is taken when the caller's tenant sees a channel of that name: its own, a
global one, or one of the files. Deleting a channel keeps its messages; they expire, or are seen again once a channel
of that name and scope is declared.

Before: handlers.py. After: services/families/definition, which decides and keeps the lines.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from loomlog.connectors.definitions import DefinitionProblem, canonical_json
from loomlog.schemas.generated.definition_commands import DefineVersion, DeleteLine
from loomlog.services.core.access.scopes import ADMIN
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.channel.access import is_system_name
from loomlog.services.families.channel.caller import GLOBAL, SCOPES, SHARED_TENANT, Declaration
from loomlog.services.families.channel.declarations import ChannelDeclarations
from loomlog.services.families.definition.author import Author
from loomlog.services.families.definition.channel_content import (
    block_content,
    check_channel_name,
    parse_channel,
)
from loomlog.services.families.definition.content import parse_content
from loomlog.services.families.definition.decide import CONFLICT
from loomlog.services.families.definition.operations import DefinitionOperations, command_envelope
from loomlog.services.families.definition.state import CHANNEL, Line

NOT_FOUND, IN_USE, IMMUTABLE = "channel_not_found", "channel_name_in_use", "channel_yaml_immutable"
DEFAULT_SCOPE = "tenant"
"""Scope of a channel that names none: the widest one that a member of a tenant may make."""


class DeclarationOperations:
    """The operations. All raise Refused and Unavailable; each returns the position of its events."""

    def __init__(self, operations: DefinitionOperations, declarations: ChannelDeclarations) -> None:
        self._operations = operations
        self.declarations = declarations
        self._written: dict[str, str] = {}
        """By tenant: position of the last declaration that was written here."""

    def written_positions(self, tenant: str) -> tuple[str, ...]:
        """Return what a run of the tenant must read so that it knows the channels that were declared here."""
        return tuple(self._written[one] for one in dict.fromkeys((tenant, SHARED_TENANT)) if one in self._written)

    async def create(self, fields: Mapping[str, Any], author: Author) -> tuple[Declaration, str]:
        """Declare a channel; return it. `fields`: those of api.ChannelCreate that are not null."""
        name, content = self._name(fields["name"]), {key: value for key, value in fields.items() if key != "name"}
        content.setdefault("scope", DEFAULT_SCOPE)
        if content["scope"] not in SCOPES:
            text = f"scope is {str(content['scope'])[:40]!r}: expected one of {', '.join(SCOPES)}"
            raise Refused("channel_scope_invalid", text)
        author = _of_scope(author, content["scope"])
        self._check_free(name, author)
        try:
            block = parse_channel(author.tenant, name, content)
        except DefinitionProblem as problem:
            raise Refused("invalid_request", problem.message) from problem
        position = await self._define(name, block_content(block), author, expect_active="")
        return self._require(author.tenant, name), position

    async def update(self, name: str, fields: Mapping[str, Any], author: Author) -> tuple[Declaration, str]:
        """Change a channel; return it. `fields`: those of api.ChannelUpdate that are not null."""
        line = self._line(name, author)
        author = replace(author, tenant=line.tenant)
        version = line.active_version
        assert version is not None, "it is not deleted"
        content = {**parse_content(version.content), **fields}
        try:
            block = parse_channel(line.tenant, name, content)
        except DefinitionProblem as problem:
            raise Refused("invalid_request", problem.message) from problem
        position = await self._define(name, block_content(block), author, expect_active=line.id_of(line.active))
        return self._require(line.tenant, name), position

    async def delete(self, name: str, author: Author) -> str:
        """Delete the declaration of a channel; its messages stay."""
        line = self._line(name, author, is_deleting=True)
        author = replace(author, tenant=line.tenant)
        command = DeleteLine(envelope=command_envelope(author), kind=CHANNEL, name=name)
        return await self._ask(command, author)

    # --- checks ------------------------------------------------------------------------------------------------------

    def _name(self, name: str) -> str:
        self._check_file(name)
        try:
            return check_channel_name(name)
        except DefinitionProblem as problem:
            raise Refused("invalid_request", problem.message) from problem

    def _check_file(self, name: str) -> None:
        if name in self.declarations.files:
            owner = "the system's" if is_system_name(name) else "a channel of the configuration file"
            raise Refused(IMMUTABLE, f"{name} is {owner}: change it in the file")

    def _check_free(self, name: str, author: Author) -> None:
        """Refuse a name that is taken. A repeated command may have taken it itself: its owner knows."""
        for tenant in dict.fromkeys((author.tenant, SHARED_TENANT)):
            is_own_repetition = tenant == author.tenant and not author.issued_at_ms
            if not is_own_repetition and self.declarations.made(tenant, name) is not None:
                raise Refused(IN_USE, f"there is a channel {name} already")
        try:
            self._operations.check_room(CHANNEL, name, author.tenant)
        except Refused as refused:
            raise Refused("invalid_request", refused.message) from refused

    def _line(self, name: str, author: Author, *, is_deleting: bool = False) -> Line:
        """Return the line of a channel that the author may change."""
        self._check_file(name)
        for tenant in dict.fromkeys((author.tenant, SHARED_TENANT)):
            line = self.declarations.table.line(CHANNEL, tenant, name)
            # A repeated deletion was carried out already: its owner answers it as before.
            is_known = line is not None and (not line.is_deleted or (is_deleting and not author.issued_at_ms))
            if line is None or not is_known:
                continue
            if tenant == SHARED_TENANT and not author.is_admin:
                text = f"{name} is global: only an administrator changes it"
                raise Refused("insufficient_scope", text, details={"scope": ADMIN})
            return line
        raise Refused(NOT_FOUND, f"there is no channel {name[:128]}")

    def _require(self, tenant: str, name: str) -> Declaration:
        declaration = self.declarations.made(tenant, name)
        if declaration is None:
            raise Refused(NOT_FOUND, f"the channel {name} was deleted meanwhile")
        return declaration

    # --- sending -----------------------------------------------------------------------------------------------------

    async def _define(self, name: str, content: Mapping[str, Any], author: Author, *, expect_active: str) -> str:
        command = DefineVersion(
            envelope=command_envelope(author),
            kind=CHANNEL,
            name=name,
            content=canonical_json(content),
            created_by_agent_id=author.agent_id,
            created_by_agent=author.agent,
            created_by_run_id=author.run_id,
            promote=True,
            expect_active=expect_active,
        )
        try:
            return await self._ask(command, author)
        except Refused as refused:
            if refused.code == CONFLICT and not expect_active:
                raise Refused(IN_USE, f"there is a channel {name} already") from refused
            raise

    async def _ask(self, command: DefineVersion | DeleteLine, author: Author) -> str:
        try:
            answer = await self._operations.ask(command)
        except Refused as refused:
            codes = {CONFLICT: CONFLICT, "not_found": NOT_FOUND}
            raise Refused(codes.get(refused.code, "invalid_request"), refused.message) from refused
        except Unavailable as error:
            raise Unavailable(str(error), is_unknown=error.is_unknown) from error
        self._written[author.tenant] = answer.position
        return answer.position


def _of_scope(author: Author, scope: str) -> Author:
    """Return the author in the tenant in which channels of a scope are declared."""
    if scope != GLOBAL:
        if not author.tenant:
            raise Refused("channel_scope_invalid", "the shared tenant has channels of the scope global only")
        return author
    if not author.is_admin:
        text = "a channel of the scope global is made by an administrator; take tenant, user or agent"
        raise Refused("insufficient_scope", text, details={"scope": ADMIN})
    return replace(author, tenant=SHARED_TENANT)
