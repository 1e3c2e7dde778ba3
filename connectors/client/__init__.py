"""Client library for programs that use loomlog: over HTTP, and over the log.

It is part of this repository and also a distribution of its own, `loomlog-client`, in which `loomlog.connectors.client`
is `loomlog_client` and `loomlog.schemas` is `loomlog_client.schemas` (build_hook.py). It imports nothing else of
loomlog.

    errors.py       what a call raises
    http.py         requests and responses of the HTTP API
    run_stream.py   the frames of a run, over lost connections
    client.py       `Client`: start, follow, steer and read runs
    events.py       events from the log, by the term rule (needs aiokafka)
    producer.py     StartRun records (needs aiokafka)
    tools.py        tools served over Kafka (needs aiokafka)

Before: programs of users, services/cli. After: services/api, the broker.
"""

from loomlog.connectors.client.client import Client, Run, RunResult
from loomlog.connectors.client.errors import ApiError, ApiUnavailable, ClientError, Unauthorized, Unreachable
from loomlog.connectors.client.run_stream import Frame, RunIds, RunStream

__all__ = [
    "ApiError",
    "ApiUnavailable",
    "Client",
    "ClientError",
    "Frame",
    "Run",
    "RunIds",
    "RunResult",
    "RunStream",
    "Unauthorized",
    "Unreachable",
]
