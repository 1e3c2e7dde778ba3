"""Rows of versions and judgements: facts of a line that are found by themselves, with what its state does not keep.

    version     by def_id: content, author, description
    promotion   each change of what is active, by line and seq; key_a is `<kind>/<name>`, key_b the version that is
                active then, empty for none; its number is the time, which all lines of a batch have in common
    judgement   by eval_id; key_a is the run, key_b the version; its number is the score
    role        the score again, key_a is the role of the judge; so that sums need no documents
    dimension   each further score of a judgement; key_a is its name

Before: the projection of entities. After: reading.py.
"""

from collections.abc import Sequence

import orjson

from loomlog.schemas.generated.definition_events import (
    DefDeleted,
    DefPromoted,
    DefRetired,
    DefVersionCreated,
    RunJudged,
)
from loomlog.schemas.generated.values import Envelope
from loomlog.services.core.families import Item, name_problem
from loomlog.services.families.definition import limits
from loomlog.services.families.definition.apply import Batch
from loomlog.services.families.definition.state import UNVERSIONED, DefinitionEvent, Line, line_id

PROMOTION_ITEM = "promotion"
VERSION_ITEM, JUDGEMENT_ITEM, ROLE_ITEM, DIMENSION_ITEM = "version", "judgement", "role", "dimension"
NO_DOCUMENT = "{}"
"""Document of rows that have nothing but their keys and number: an empty one would remove the row."""


def dimension_problem(name: str) -> str:
    """Return what is wrong with the name of a dimension; empty when nothing is."""
    size = len(name.encode("utf-8", "surrogatepass"))
    if size > limits.DIMENSION_NAME_BYTES_MAX:
        return f"has {size} bytes: at most {limits.DIMENSION_NAME_BYTES_MAX}"
    return name_problem(name)


def _score_row(event: RunJudged, kind: str, row_id: str, key: str, number: float) -> Item:
    return Item(kind=kind, id=row_id, key_a=key, key_b=event.def_id, number=number, document=NO_DOCUMENT)


def _promotion_row(event: DefPromoted | DefRetired | DefDeleted, envelope: Envelope) -> Item:
    line, at_ms, active = line_id(event.kind, event.name), envelope.at_ms, ""
    document: dict[str, object] = {"why": event.why, "by": event.by}
    if isinstance(event, DefPromoted):
        active, at_ms = event.to_def_id, event.applied_at_ms or at_ms
        document |= {
            "from": event.from_def_id,
            "version": event.version,
            "undoes": event.undoes,
            "by_agent_id": event.by_agent_id,
            "batch": event.batch,
        }
    return Item(
        kind=PROMOTION_ITEM,
        id=f"{line} {envelope.seq}",
        key_a=line,
        key_b=active,
        number=float(at_ms),
        document=orjson.dumps(document).decode(),
    )


def items(line: Line | Batch, event: DefinitionEvent, envelope: Envelope) -> Sequence[Item]:
    """Return the rows of an event."""
    match event:
        case DefVersionCreated():
            blob = event.content_blob
            document = {
                "version": event.version,
                "parent_def_id": event.parent_def_id,
                "content": event.content,
                "blob": None if blob is None else blob.to_avro(),
                "content_sha256": event.content_sha256,
                "description": event.description,
                "created_by_agent_id": event.created_by_agent_id,
                "created_by_run_id": event.created_by_run_id,
                "by": event.by,
            }
            return [
                Item(kind=VERSION_ITEM, id=event.def_id, key_a=event.kind, document=orjson.dumps(document).decode())
            ]
        case DefPromoted() | DefRetired(was_active=True) | DefDeleted() if event.kind not in UNVERSIONED:
            return [_promotion_row(event, envelope)]
        case RunJudged():
            document = {
                "dimensions": dict(event.dimensions),
                "judgement": event.judgement,
                "rationale": event.rationale,
                "emitter_role": event.emitter_role,
                "emitter_agent_id": event.emitter_agent_id,
                "emitter_run_id": event.emitter_run_id,
                "version": event.version,
                "user_id": event.user_id,
                "by": event.by,
            }
            return [
                Item(
                    kind=JUDGEMENT_ITEM,
                    id=event.eval_id,
                    key_a=event.run_id,
                    key_b=event.def_id,
                    number=event.score,
                    document=orjson.dumps(document).decode(),
                ),
                _score_row(event, ROLE_ITEM, event.eval_id, event.emitter_role, event.score),
                *(
                    _score_row(event, DIMENSION_ITEM, f"{event.eval_id}/{name}", name, number)
                    for name, number in event.dimensions.items()
                ),
            ]
        case _:
            return ()
