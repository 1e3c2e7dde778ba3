"""Examples of request bodies, for the OpenAPI document and the curl commands of its page.

A test validates each against its model. Before: services/application/bodies/models.py. After: openapi.py, docs_page.py.
"""

from collections.abc import Mapping
from typing import Any

from loomlog.services.application.bodies import models

BODY_EXAMPLES: Mapping[type[models.Body], Mapping[str, Any]] = {
    models.RunBody: {"agent": "assistant", "prompt": "Summarise the incident of this morning.", "user_id": "ada"},
    models.MessageBody: {"prompt": "And what should we do about it?"},
    models.BatchBody: {"spawns": [{"agent": "assistant", "prompt": "one"}, {"agent": "assistant", "prompt": "two"}]},
    models.ForkBody: {"at": 7, "prompt": "Try another way.", "overrides": {"model": "large"}},
    models.LimitBody: {"scope": "user", "scope_id": "ada", "soft_limit": 800_000, "hard_limit": 1_000_000},
    models.VerifyBody: {"since": "2026-01-31T12:00:00Z", "channels": True},
}
