"""The block local_api: an HTTP API of the operator's, described by an OpenAPI file, whose operations are tools.

Before: model.py. After: connectors/openapi.py.
"""

from dataclasses import field
from typing import Annotated

from pydantic import Field

from loomlog.connectors.configuration.field_types import OptionalUrl, configuration_block
from loomlog.connectors.configuration.mcp_block import Texts
from loomlog.connectors.openapi import Api, load_api

PREFIX = r"^[A-Za-z][A-Za-z0-9_-]{0,31}$|^$"


@configuration_block
class LocalApiBlock:
    """Value of local_api. A relative path in `spec` is resolved against the folder of the file that has it."""

    spec: str = ""
    base_url: OptionalUrl = ""
    tool_name_prefix: Annotated[str, Field(pattern=PREFIX)] = ""
    headers: Texts = field(default_factory=dict)

    def load(self) -> Api | None:
        """Return the operations; None without a file. Raises ApiFileRefused."""
        return load_api(self.spec, self.base_url, self.tool_name_prefix, tuple(self.headers)) if self.spec else None
