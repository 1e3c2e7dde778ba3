"""Configuration files shipped with the program: presets and a template of variables; no data of this installation.

Before: operator_routes.py. After: loomlog.connectors.configuration.
"""

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from loomlog.connectors.configuration.env_template import render_env_template
from loomlog.services.api.service import Service
from loomlog.services.core.access.decide import Caller


async def get_env_template(service: Service, caller: Caller, request: Request) -> Response:
    return PlainTextResponse(render_env_template())
