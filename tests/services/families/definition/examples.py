"""Commands of the definition family for the contract suite."""

from collections.abc import Sequence
from typing import Any

from loomlog.connectors.definitions import KINDS, canonical_json
from loomlog.schemas.generated.definition_commands import (
    ApplyDefinitions,
    DefineVersion,
    DeleteLine,
    ForkVersion,
    ObserveStatic,
    PromoteVersion,
    RetireVersion,
    RollBack,
    SubmitJudgement,
)
from loomlog.schemas.generated.values import CommandEnvelope, DefinitionChange
from loomlog.services.core.definitions import def_id


def agent(prompt: str, **fields: Any) -> dict[str, Any]:
    """Return the fields of a command with the content of an agent."""
    content = KINDS["agent"].compose("helper", {"model": "m", "system_prompt": prompt, **fields})
    return {
        "content": canonical_json(content),
        "content_sha256": KINDS["agent"].hash("helper", content),
        "tools": tuple(content.get("tools", ())),
    }


def examples(envelope: CommandEnvelope) -> Sequence[Any]:
    """An agent that is made, forked, promoted, rolled back, retired and judged; a batch; a deleted skill and volume."""
    of_helper: dict[str, Any] = {"envelope": envelope, "kind": "agent", "name": "helper"}
    of_volume: dict[str, Any] = {"envelope": envelope, "kind": "volume", "name": "notes"}
    of_skill: dict[str, Any] = {"envelope": envelope, "kind": "skill", "name": "greet"}

    def helper_id(number: int) -> str:
        return def_id(envelope.tenant, "agent", "helper", number)

    body = canonical_json(KINDS["skill"].compose("greet", {"body": "Say hello."}))
    change = DefinitionChange(kind="agent", name="batched", **agent("in a batch"))
    return [
        DefineVersion(**of_helper, **agent("one", tools=["Read"]), description="first"),
        DefineVersion(**of_helper, **agent("one", tools=["Read"])),
        ForkVersion(**of_helper, **agent("two", tools=["Read"]), promote=False, parent_def_id=helper_id(1)),
        ForkVersion(**of_helper, **agent("three", tools=["Bash"]), promote=False, parent_def_id=helper_id(1)),
        PromoteVersion(**of_helper, def_id=helper_id(2), why="better"),
        PromoteVersion(**of_helper, def_id=helper_id(1), expect_active="def_other"),
        RollBack(**of_helper, why="worse"),
        RetireVersion(**of_helper, def_id=helper_id(2)),
        RetireVersion(**of_helper, def_id=helper_id(2), retired=False),
        SubmitJudgement(
            **of_helper,
            eval_id="eval_1",
            run_id="r_a",
            def_id=helper_id(1),
            version=1,
            score=0.5,
            dimensions={"style": 0.25},
            judgement="private words",
            rationale="more private words",
            emitter_role="external",
            user_id="ada",
        ),
        DefineVersion(**of_volume, content=canonical_json({"path": "/pool/notes", "mode": "rw"})),
        DeleteLine(**of_volume, expect_sha256="0" * 64),
        DeleteLine(**of_volume),
        DefineVersion(**of_volume, content=canonical_json({"path": "/pool/notes", "mode": "ro"})),
        DefineVersion(**of_skill, content=body),
        DeleteLine(**of_skill),
        DefineVersion(**of_skill, content=body, expires_at_ms=1),
        ObserveStatic(envelope=envelope, kind="agent", name="filed", observer="runtime-1", **_content("from a file")),
        ForkVersion(
            envelope=envelope,
            kind="agent",
            name="filed",
            **agent("forked", tools=["Read"]),
            base_content=agent("from a file")["content"],
            root_tools=("Read",),
        ),
        ApplyDefinitions(envelope=envelope, kind="apply", name="b1", changes=(change,), description="together"),
    ]


def _content(prompt: str) -> dict[str, Any]:
    fields = agent(prompt)
    del fields["tools"]
    return fields
