"""Schemas of records as data, for those that describe the fields of a record to people and programs.

It reads one file of schemas/released and no more, because the command line describes records before it imports the
codec. Before: services/core/command_fields.py. After: the released copies that schemas/generate.py writes.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

RELEASED = Path(__file__).parent / "released"


@cache
def record_schema(name: str) -> Any:
    """Return the newest schema of a record by its full name, with every type written out where it first occurs.

    Raises LookupError when no record has the name.
    """
    versions = [int(path.stem) for path in (RELEASED / name).glob("*.avsc")]
    if not versions:
        raise LookupError(f"there is no record {name} in {RELEASED}")
    return json.loads((RELEASED / name / f"{max(versions)}.avsc").read_text(encoding="utf-8"))
