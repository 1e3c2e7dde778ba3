"""Words about definitions that their family and others share: where they are served, and the ids of versions, which
follow from what they are of, so that no list of versions is read for one. Pure.

Before: services/families/definition, services/application/operations/definition_runs.py, services/cli/definitions.
After: operations.py.
"""

from hashlib import sha256
from typing import Annotated

from msgspec import Meta

from loomlog.services.core.operations import Tag

TAG = Tag(
    name="Definitions",
    description="Agents, skills and other definitions, as versions in the log. Administrators name the tenant _shared "
    "for the definitions of all tenants.",
)
PATH = "/v1/_definitions"
VERSION_PATH = PATH + "/{def_id}"
DefinitionId = Annotated[str, Meta(description="Id of a version.")]
PREFIXES = {"skill": "sdf_", "team": "tdf_", "mcpserver": "mdf_"}
DEFAULT_PREFIX = "def_"


def def_id(tenant: str, kind: str, name: str, number: int) -> str:
    """Return the id of a version: it follows from the line and the number."""
    return _derive_id(kind, f"{tenant}\0{kind}\0{name}\0{number}")


def static_def_id(kind: str, name: str, digest: bytes) -> str:
    """Return the id of a definition of a file: it follows from its content."""
    return _derive_id(kind, f"\0{kind}\0{name}\0file {digest.hex()}")


def _derive_id(kind: str, text: str) -> str:
    return PREFIXES.get(kind, DEFAULT_PREFIX) + sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
