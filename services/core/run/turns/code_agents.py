"""Differences of a run whose agent is a script (runtime parity 2.10).

    turns     each is one execution of the script from its start, so they are limited by the backstop only
    texts     a text received while a script is under way waits until it has returned or was stopped; the script is
              then executed for that text, and for the next of them after it
    time      the run's deadline has its own code, whether the script's process or the run's timer noticed first
    failures  the run fails with the reason's own code instead of model_error

Before: services/core/run/conversation/conversation.py and services/core/run/decide.py. After:
connectors/models/code_js.py executes.
"""

from loomlog.schemas.conversation import ToolResultBlock
from loomlog.schemas.generated.values import AgentDefinition
from loomlog.services.core.run.run_facts import RunFacts

FAILURE_PREFIX = "code_agent_"


def is_code_agent(definition: AgentDefinition) -> bool:
    """Whether the agent is a script."""
    return bool(definition.code_body) or definition.code_blob is not None


def is_mid_script(facts: RunFacts) -> bool:
    """Whether the script is to continue with the answer of a call: it has not returned and was not stopped."""
    if facts.is_turn_over or not is_code_agent(facts.definition) or not facts.messages:
        return False
    return any(isinstance(block, ToolResultBlock) for block in facts.messages[-1].blocks)


def failure_code(kind: str) -> str:
    """Return the code of a run that ends because of a failed model call."""
    return kind if kind.startswith(FAILURE_PREFIX) else "model_error"


def timeout_code(definition: AgentDefinition) -> str:
    """Return the code of a run whose deadline has passed."""
    return "code_agent_timeout" if is_code_agent(definition) else "run_timeout"
