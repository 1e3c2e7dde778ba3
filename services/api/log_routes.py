"""The routes of the log for operators: topics and their records, dead letters, verification; and the checks of health.

Before: routes.py. After: log_endpoints.py, dead_letter_endpoints.py, audit_endpoints.py, health_endpoints.py.
"""

from loomlog.services.api import audit_endpoints, dead_letter_endpoints, health_endpoints, log_endpoints
from loomlog.services.api.route import CURSOR_PARAMETER, LIMIT_PARAMETER, POSITIVE_INTEGER, QueryParameter, Route, Tag
from loomlog.services.application.bodies.models import AcknowledgeLetterBody, ReplayLetterBody, VerifyBody
from loomlog.services.application.log.dead_letters import DeadLetterKind
from loomlog.services.core.access.rules import requires
from loomlog.services.core.access.scopes import ADMIN

LOG_TAG = Tag(name="Log", description="Records of the log.")
DEAD_LETTER_TAG = Tag(name="Dead letters", description="Records that could not be handled, and their replay.")
AUDIT_TAG = Tag(name="Audit", description="Verification of the log against its signed checkpoints.")
HEALTH_TAG = Tag(name="Operations", description="Health, metrics, routing and availability of models.")
DEAD_LETTER_PATH = "/v1/_dead_letters/{offset}"

LOG_ROUTES: tuple[Route, ...] = (
    Route(
        method="GET",
        path="/v1/_log/topics",
        access=requires(ADMIN),
        handler=log_endpoints.list_topics,
        summary="List the topics of the installation: their partitions with offsets, retention and kind.",
        tag=LOG_TAG,
    ),
    Route(
        method="GET",
        path="/v1/_log/topics/{topic}/{partition}",
        access=requires(ADMIN),
        handler=log_endpoints.list_records,
        summary="List the records of a partition, decoded, with the class that the reading rule gives each.",
        query=(
            QueryParameter(
                name="from", description="Offset of the first record, or its time (RFC 3339); the newest when absent."
            ),
            QueryParameter(
                name="tail",
                description="Instead of `from`: begin so many offsets before the end.",
                schema=POSITIVE_INTEGER,
            ),
            QueryParameter(name="type", description="Only this type, for example RunStarted."),
            QueryParameter(name="run_id", description="Only this run, or this aggregate (family:tenant/name)."),
            LIMIT_PARAMETER,
            CURSOR_PARAMETER,
        ),
        tag=LOG_TAG,
    ),
    Route(
        method="GET",
        path="/v1/_dead_letters",
        access=requires(ADMIN),
        handler=dead_letter_endpoints.list_dead_letters,
        summary="List dead letters, the newest first.",
        query=(
            QueryParameter(
                name="kind",
                description="Only this kind.",
                schema={"type": "string", "enum": [kind.value for kind in DeadLetterKind]},
            ),
            LIMIT_PARAMETER,
            CURSOR_PARAMETER,
        ),
        tag=DEAD_LETTER_TAG,
    ),
    Route(
        method="GET",
        path=DEAD_LETTER_PATH,
        access=requires(ADMIN),
        handler=dead_letter_endpoints.get_dead_letter,
        summary="Get a dead letter with its original.",
        tag=DEAD_LETTER_TAG,
    ),
    Route(
        method="POST",
        path=f"{DEAD_LETTER_PATH}/replay",
        access=requires(ADMIN),
        handler=dead_letter_endpoints.replay_dead_letter,
        summary="Append the original of a dead letter to its commands topic again.",
        body=ReplayLetterBody,
        body_optional=True,
        tag=DEAD_LETTER_TAG,
    ),
    Route(
        method="POST",
        path=f"{DEAD_LETTER_PATH}/acknowledge",
        access=requires(ADMIN),
        handler=dead_letter_endpoints.acknowledge_dead_letter,
        summary="Note that nothing more is needed of a dead letter.",
        body=AcknowledgeLetterBody,
        body_optional=True,
        tag=DEAD_LETTER_TAG,
    ),
    Route(
        method="GET",
        path="/v1/_doctor",
        access=requires(ADMIN),
        handler=health_endpoints.get_health_report,
        summary="Check broker, Postgres, topics, dead letters, signatures, read models, runs, entities and insights.",
        tag=HEALTH_TAG,
    ),
    Route(
        method="POST",
        path="/v1/_audit/verify",
        access=requires(ADMIN),
        handler=audit_endpoints.verify_log,
        summary="Verify the log, a part of it or a run: progress, then result or error; one at a time in a process.",
        body=VerifyBody,
        body_optional=True,
        is_stream=True,
        tag=AUDIT_TAG,
    ),
    Route(
        method="GET",
        path="/v1/_audit/checkpoints",
        access=requires(ADMIN),
        handler=audit_endpoints.list_checkpoints,
        summary="List the newest signed checkpoints of each partition, with whether their signature is valid.",
        query=(
            QueryParameter(
                name="limit", description="Most checkpoints of one partition of a topic.", schema=POSITIVE_INTEGER
            ),
        ),
        tag=AUDIT_TAG,
    ),
)
