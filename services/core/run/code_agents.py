"""What is different about a run whose agent is a script (runtime parity 2.10).

    turns     each is one execution of the script from its start, so there is no bound of them but the backstop
    texts     what is said while a script is under way waits until it has returned; it is then executed for that text
    time      the whole run has a limit; time it was parked or paused does not count, for nothing was done in it
    failures  the run fails with the reason's own code instead of model_error

Before: state.py and decide.py. After: connectors/models/code_js.py executes.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from schemas.conversation import ToolResultBlock
from schemas.values import AgentDefinition
from services.core.changing import changed

if TYPE_CHECKING:
    from services.core.run.state import Facts  # state.py asks here what a script may read

FAILURE_PREFIX = "code_agent_"


def is_code_agent(definition: AgentDefinition) -> bool:
    """Its runs execute a script."""
    return bool(definition.code_body) or definition.code_blob is not None


def is_mid_script(facts: "Facts") -> bool:
    """The script has asked for something and goes on with the answer."""
    if not is_code_agent(facts.definition) or not facts.messages:
        return False
    return any(isinstance(block, ToolResultBlock) for block in facts.messages[-1].blocks)


def failure_code(kind: str) -> str:
    """The code of a run that ends because of a failed model call."""
    return kind if kind.startswith(FAILURE_PREFIX) else "model_error"


def with_time_limit(definition: AgentDefinition, run_timeout_s: int) -> AgentDefinition:
    """The definition under the limit that the run asked for; 0 keeps its own."""
    return replace(definition, run_timeout_s=run_timeout_s) if run_timeout_s > 0 else definition


def after_hold(facts: "Facts", since_ms: int, at_ms: int) -> "Facts":
    """The facts of a run that goes on after it stood still from `since_ms`."""
    return changed(facts, held_ms=facts.held_ms + max(0, at_ms - since_ms))


def elapsed_ms(facts: "Facts", now_ms: int) -> int:
    """How long the run has been going, without the time it stood still. Not negative, whatever the clocks say."""
    return max(0, now_ms - facts.started_at_ms - facts.held_ms)
