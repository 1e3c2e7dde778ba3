"""Configuration files shipped with the program: presets and a template of variables; no data of this installation.

Before: operator_routes.py. After: loomlog.connectors.configuration.
"""

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from loomlog.connectors.configuration.env_template import render_env_template
from loomlog.connectors.configuration.findings import did_you_mean
from loomlog.connectors.configuration.presets import KIND, Preset, load_presets
from loomlog.services.api.responses import JsonResponse, json_response
from loomlog.services.api.service import Service
from loomlog.services.application.answers.operators import PresetContent, PresetList, PresetSummary
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.refusals import Refused


async def list_presets(service: Service, caller: Caller, request: Request) -> JsonResponse[PresetList]:
    return json_response({"units": [_preset_json(preset) for preset in load_presets().values()]})


async def get_preset(service: Service, caller: Caller, request: Request) -> JsonResponse[PresetContent]:
    name = request.path_params["name"]
    preset = load_presets().get(name)
    if preset is None:
        raise Refused("unknown_preset", f"there is no preset {name[:80]}{did_you_mean(name[:80], load_presets())}")
    return json_response({**_preset_json(preset), "content": preset.content})


async def get_env_template(service: Service, caller: Caller, request: Request) -> Response:
    return PlainTextResponse(render_env_template())


def _preset_json(preset: Preset) -> PresetSummary:
    return {"name": preset.name, "kind": KIND, "description": preset.description}
