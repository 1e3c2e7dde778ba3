"""The ids of a new run, and with them the partition whose owner decides about it (schemas/ids.py).

    plain                      r_<fresh>                             same partition as runs that start together
                                                                     (sticky_partitioner.py)
    chosen handle              r_<hash of the handle>-<fresh>        equal handles share a partition, so the owner can
                                                                     refuse the second
    Idempotency-Key            r_<hash of the key>                   the same key is the same run at any time
    continuation               r_<the session's>-<fresh>             the runs of a session share a partition
    continuation with a key    r_<the session's>-<hash of the key>
    fork                       as a continuation, under the key of its origin, in a session of its own

The session of a new run is s_ and its handle, when none was chosen, a_ with the same rest, so that each can be derived
from the others without a look-up. Time and randomness are arguments; nothing is drawn here.
"""

from loomlog.schemas.ids import hashed_token, partition_key
from loomlog.schemas.records import Value


class RunNames(Value, frozen=True, kw_only=True):
    """Ids of a run; `key` is the record key of its commands."""

    run_id: str
    session_id: str
    agent_id: str
    key: str


def handle_token(tenant: str, agent_id: str) -> str:
    """Return the token of a chosen handle: the partition key of a fresh run that has it."""
    return hashed_token("handle", tenant, agent_id)


def new_run_names(*, fresh_token: str, tenant: str, subject: str, agent_id: str, idempotency_key: str) -> RunNames:
    """Return the ids of a run in a session of its own."""
    if idempotency_key:
        token = hashed_token("idempotency", tenant, subject, idempotency_key)
    elif agent_id:
        token = f"{handle_token(tenant, agent_id)}-{fresh_token}"
    else:
        token = fresh_token
    return _make_names(token, f"s_{token}", agent_id)


def continuation_names(
    *, fresh_token: str, session_id: str, tenant: str, subject: str, agent_id: str, idempotency_key: str
) -> RunNames:
    """Return the ids of a further run of a session."""
    rest = hashed_token("idempotency", tenant, subject, idempotency_key) if idempotency_key else fresh_token
    return _make_names(f"{partition_key(session_id)}-{rest}", session_id, agent_id)


def fork_names(
    *, fresh_token: str, origin: str, tenant: str, subject: str, agent_id: str, idempotency_key: str
) -> RunNames:
    """Return the ids of a fork: in the partition of its origin, whose events it is folded from."""
    rest = hashed_token("idempotency", tenant, subject, idempotency_key) if idempotency_key else fresh_token
    token = f"{partition_key(origin)}-{rest}"
    return _make_names(token, f"s_{token}", agent_id)


def _make_names(token: str, session_id: str, agent_id: str) -> RunNames:
    return RunNames(
        run_id=f"r_{token}", session_id=session_id, agent_id=agent_id or f"a_{token}", key=partition_key(f"r_{token}")
    )
