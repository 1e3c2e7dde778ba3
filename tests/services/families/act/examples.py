"""Commands of the family of acts for the contract suite."""

from collections.abc import Sequence
from typing import Any

from loomlog.schemas.generated.act_commands import BeginAct, EndAct, NoteRefusals
from loomlog.schemas.generated.values import CommandEnvelope

WHO = {
    "operation": "hook.register",
    "who": "ada",
    "token": "ci",
    "token_id": "t_1",
    "transport": "http",
    "request_id": "q_1",
    "target": "mask",
    "at_ms": 1_800_000_000_000,
}


def examples(envelope: CommandEnvelope) -> Sequence[Any]:
    """Acts that are done, refused and repeated; and mistakes."""

    def begin(act_id: str, **changes: Any) -> BeginAct:
        return BeginAct(envelope=envelope, act_id=act_id, **{**WHO, "request": '{"name":"mask"}', **changes})

    def end(act_id: str, outcome: str = "done", **fields: Any) -> EndAct:
        return EndAct(envelope=envelope, act_id=act_id, outcome=outcome, **fields)

    def refuse(act_id: str, count: int) -> NoteRefusals:
        return NoteRefusals(envelope=envelope, act_id=act_id, **WHO, code="insufficient_scope", count=count)

    return [
        begin("one"),
        end("one", before='{"hooks":0}', after='{"hooks":1}'),
        begin("one"),
        end("one", "unknown", code="internal"),
        begin("two", target="a\nb"),
        end("two"),
        begin("three"),
        end("three", "unknown", code="command_pending"),
        end("three", "refused", code="not_found"),
        refuse("four", 1),
        refuse("five", 0),
        end("four"),
    ]
