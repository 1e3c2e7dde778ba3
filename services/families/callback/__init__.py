"""The family of callbacks: signed requests to addresses of others after the end of a run, retried for a day.

An aggregate is one hook of one run. It decides when an attempt is made; a process makes it and tells its end.

    state.py, decide.py   the rules
    sends.py              the attempt on its way to the process that makes it

Before: services/runtime/run/run_end_actions.py requests one. After: posts.py posts.
"""

from typing import NotRequired

from typing_extensions import TypedDict

from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.schemas.generated.callback_commands import RequestCallback, SettleCallback
from loomlog.services.core.access.scopes import TENANT
from loomlog.services.core.families import WHOLE_HISTORY, Family, Rules, inner_commands
from loomlog.services.families.callback.decide import decide as decide_callback
from loomlog.services.families.callback.sends import sends as callback_sends
from loomlog.services.families.callback.state import (
    FAMILY_NAME,
    VERSION,
    WAITING,
    Callback,
    aggregate_name,
    evolve,
    initial,
    next_timer_ms,
)

_command = inner_commands(lambda command: aggregate_name(command.run_id, command.hook))


class CallbackView(TypedDict):
    """What is shown of a callback: everything but its body."""

    run_id: str
    hook: int
    status: str
    url: str
    secret_env: str
    attempts: int
    http_status: int
    error: str
    requested_at: str
    next_attempt_at: NotRequired[str]
    ended_at: NotRequired[str]


def view(callback: Callback) -> CallbackView:
    """Return what is shown of a callback."""
    shown: CallbackView = {
        "run_id": callback.run_id,
        "hook": callback.hook,
        "status": callback.status,
        "url": callback.url,
        "secret_env": callback.secret_env,
        "attempts": callback.attempt,
        "http_status": callback.http_status,
        "error": callback.error,
        "requested_at": format_rfc3339(callback.requested_at_ms),
    }
    if callback.status == WAITING:
        shown["next_attempt_at"] = format_rfc3339(callback.due_ms)
    if callback.ended_at_ms:
        shown["ended_at"] = format_rfc3339(callback.ended_at_ms)
    return shown


FAMILY = Family(
    name=FAMILY_NAME,
    summary="A request to an address of others after the end of a run.",
    rules=Rules(
        state=Callback,
        initial=initial,
        decide=decide_callback,
        evolve=evolve,
        next_timer_ms=next_timer_ms,
        version=VERSION,
    ),
    lifecycle=WHOLE_HISTORY,
    commands=(
        _command(RequestCallback, "request", "Send a request after the end of a run."),
        _command(SettleCallback, "settle", "Tell how an attempt has ended."),
    ),
    scope=TENANT,
    view=view,
    sends=callback_sends,
    services="loomlog.services.families.callback.services",
)
