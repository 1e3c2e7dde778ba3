"""Fields of StartRun and RunStarted as tests write them: flat."""

from typing import Any

from loomlog.schemas.generated.values import RunOptions


def grouped(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields with those of RunOptions moved into `options`."""
    options = {name: value for name, value in fields.items() if name in RunOptions.__struct_fields__}
    if not options:
        return fields
    return {name: value for name, value in fields.items() if name not in options} | {"options": RunOptions(**options)}
