"""The fields of operations whose input is a model of a body.

Before: declarations of operations. After: services/application/bodies/problems.py says what is wrong in a body.
"""

from typing import Any, TypeVar

import orjson
from pydantic import ValidationError

from loomlog.services.application.bodies.models import Body
from loomlog.services.application.bodies.problems import describe_problems
from loomlog.services.core.operation_input import written_out
from loomlog.services.core.operations import Fields

BodyT = TypeVar("BodyT", bound=Body)


def model_fields(model: type[BodyT]) -> Fields[BodyT]:
    """Return the fields of a model; what is wrong in them is said as in the bodies of requests."""

    def parse(fields: Any) -> BodyT:
        try:
            return model.model_validate_json(orjson.dumps(fields))
        except ValidationError as error:
            raise ValueError(describe_problems(error, model)) from error

    whole = model.model_json_schema()
    parts = {f"#/$defs/{name}": part for name, part in whole.pop("$defs", {}).items()}
    return Fields(schema=written_out(whole, parts), parse=parse, model=model)
