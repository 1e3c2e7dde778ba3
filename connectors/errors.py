"""The two kinds of failure of external systems.

    ConnectorError
      Transient    try again, perhaps later: retry_after_s is the delay, kind the reason
      Permanent    the same call will fail again

Every connector translates every error of its driver into one of these, `raise ... from error`; tests prove that none
leaks. `kind` is from the closed lists below. Messages of model failures begin with `<provider> <status>: ` where there
is a status (runtime parity 1.7), because people search logs for it.
"""

TRANSIENT_KINDS = frozenset(
    {
        "rate_limited",
        "overloaded",
        "unavailable",
        "timeout",
        "network",
        "broken_off",
        "stale",
        "provider_concurrency_exhausted",
    }
)
"""Kinds of transient failure: 429, 529, other 5xx, header or idle timeout, connection, a stream that ended in the
middle, a connection kept from an earlier call that the other side closed before it answered, no free slot among the
concurrent calls of our own process.
"""
CODE_AGENT_KINDS = frozenset(
    {
        "code_agent_load",
        "code_agent_threw",
        "code_agent_timeout",
        "code_agent_cancelled",
        "code_agent_replay_divergence",
    }
)
"""Kinds of failure of a code agent's script that reached neither a call nor an end (runtime parity 2.10)."""
PERMANENT_KINDS = CODE_AGENT_KINDS | {
    "invalid",
    "unauthorised",
    "forbidden",
    "not_found",
    "deprecated",
    "unsupported",
    "refused",
    "quota_exhausted",
    "context_exceeded",
    "operator_key_restricted",
}
"""Kinds of permanent failure: 400 or 422, 401, 403, 404, retired model, a missing capability, policy (host not allowed,
no key), an account that has nothing left to spend, a conversation that is longer than the model's window, a run that
may not use the operator's key and has none.
"""


class ConnectorError(Exception):
    """An external system did not do what was requested. `status` is the HTTP status, 0 when there was none."""

    def __init__(self, message: str, *, kind: str, status: int = 0) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status


class Transient(ConnectorError):
    """Failure that is worth another try. `retry_after_s` is the delay the other side requested, None without one."""

    def __init__(self, message: str, *, kind: str, status: int = 0, retry_after_s: float | None = None) -> None:
        assert kind in TRANSIENT_KINDS, kind
        super().__init__(message, kind=kind, status=status)
        self.retry_after_s = retry_after_s


class Permanent(ConnectorError):
    """The same call will fail again."""

    def __init__(self, message: str, *, kind: str, status: int = 0) -> None:
        assert kind in PERMANENT_KINDS, kind
        super().__init__(message, kind=kind, status=status)


class UnknownOutcome(Transient):
    """An append may or may not be in the log. The writer must read the log before it decides anything more."""

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="broken_off")


def describe_unreachable(what: str, error: ConnectorError) -> str:
    """Return that something cannot be reached, in words for clients: what the driver says stays in the logs."""
    hint = "it is not set up rightly; see the logs" if isinstance(error, Permanent) else "try again in a moment"
    return f"{what} cannot be reached ({error.kind}); {hint}"
