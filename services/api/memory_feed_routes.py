"""The routes of the feeds of changes.

Before: routes.py. After: memory_feed_endpoints.py.
"""

from loomlog.services.api import memory_feed_endpoints
from loomlog.services.api.route import TENANT_PARAMETER, QueryParameter, Route, Tag
from loomlog.services.core.access.rules import requires
from loomlog.services.core.access.scopes import TENANT as TENANT_SCOPE

TAG = Tag(name="Changes", description="What has changed, without the values: for caches and other followers.")
QUERY = (
    QueryParameter(
        name="since",
        description="Seq after which the feed resumes, of a frame seen before; `gap` in the first frame says that "
        "changes in between are gone. Anything else than a number is 0, the oldest change that is kept.",
    ),
    TENANT_PARAMETER,
)
MEMORY_FEED_ROUTES: tuple[Route, ...] = (
    Route(
        method="GET",
        path="/v1/_memory/changes",
        access=requires(TENANT_SCOPE),
        handler=memory_feed_endpoints.watch_memory_changes,
        tag=TAG,
        summary="Follow the changes of memory: feed, then change with scope and key, without values.",
        is_stream=True,
        query=QUERY,
    ),
    Route(
        method="GET",
        path="/v1/_document/changes",
        access=requires(TENANT_SCOPE),
        handler=memory_feed_endpoints.watch_document_changes,
        tag=TAG,
        summary="Follow the changes of documents: feed, then change, without contents.",
        is_stream=True,
        query=QUERY,
    ),
)
