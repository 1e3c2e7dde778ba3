"""What this installation offers and keeps, as JSON: the views of GET /v1/config and GET /v1/_retention.

The view of /v1/config widens with its caller: `public` says what there is, `authenticated` also how it is routed and
bounded, `admin` also where it is kept. Formats as in reference surfaces 1.8 and 1.9.

Before: process_handlers.py. After: routing_view.py, connectors/configuration.
"""

from collections.abc import Mapping
from datetime import timedelta

from loomlog.connectors.configuration.driver_options import embedder_options
from loomlog.connectors.configuration.load import ProcessConfiguration
from loomlog.connectors.configuration.model import Concurrency
from loomlog.connectors.storage import metric_samples, request_keys
from loomlog.services.application.answers.operators import (
    ConfigLimits,
    Feature,
    Kept,
    OfferedModel,
    OfferedProvider,
    RetentionView,
    RoutingTable,
)
from loomlog.services.families.registry import all_families

ABSENT_FEATURES = ("documents", "bashbox", "retention", "search")
"""Features that clients of the reference ask for, and that are not here yet."""


def features_of(loaded: ProcessConfiguration) -> Mapping[str, bool]:
    """Return which features can be used, by their names."""
    settings = loaded.settings
    return {
        "vector_memory": embedder_options(loaded.configuration, settings) is not None,
        "full_text_memory": True,
        "memory_layer": True,
        "sql_memory": settings.sqlmem_enabled,
        "bash": settings.bash_enabled,
        "scheduler": settings.scheduler_enabled,
        "webhooks": settings.webhooks_enabled,
        "code_js": settings.code_agents_enabled,
        "consolidation": True,
        **dict.fromkeys(ABSENT_FEATURES, False),
    }


def features_json(features: Mapping[str, bool], *, is_admin: bool) -> dict[str, Feature]:
    """Return the features; administrators also see where everything is stored."""
    shown: dict[str, Feature] = {name: {"available": available} for name, available in sorted(features.items())}
    if is_admin:
        shown["storage"] = {"available": True, "backend": "log"}
    return shown


def providers_json(routing: RoutingTable) -> list[OfferedProvider]:
    """Return the providers; an active one can be called."""
    return [{"provider": one["provider"], "active": one["available"]} for one in routing["providers"]]


def models_json(routing: RoutingTable) -> list[OfferedModel]:
    """Return the models of all plans and tiers, each once; a selected one is what some tier takes now."""
    offered: dict[tuple[str, str], OfferedModel] = {}
    for plan in routing["user_tiers"]:
        for tier in plan["tiers"]:
            for choice in tier["cascade"]:
                place = choice["provider"], choice["model"]
                one = offered.setdefault(
                    place, {"provider": place[0], "model": place[1], "tiers": [], "active": False, "selected": False}
                )
                one["tiers"] = sorted({*one["tiers"], tier["tier"]})
                one["active"] = one["active"] or choice["available"]
                one["selected"] = one["selected"] or choice["selected"]
    return [offered[place] for place in sorted(offered)]


def limits_json(concurrency: Concurrency, *, max_request_bytes: int) -> ConfigLimits:
    """Return what bounds requests and runs; 0 is no bound."""
    return {
        "max_request_bytes": max_request_bytes,
        "max_concurrent_runs": concurrency.max_concurrent_runs,
        "max_queue_depth": concurrency.max_queue_depth,
        "max_concurrent_runs_per_user": concurrency.max_concurrent_runs_per_user,
    }


def retention_json(*, is_admin: bool, memory_changes_hours: int) -> RetentionView:
    """Return what is kept and how long. Nothing of runs, definitions and memory is deleted by age."""
    return {
        "admin": is_admin,
        "enabled": False,
        "interval_ms": 0,
        "defs_mode": "off",
        "defs_max_age_ms": 0,
        "defs_keep_last_n": 0,
        "chats_mode": "off",
        "chats_max_age_ms": 0,
        "chats_internal_max_age_ms": 0,
        "mem_mode": "off",
        "mem_max_age_ms": 0,
        "mem_content_mode": "off",
        "mem_content_max_age_ms": 0,
        "kept": [
            _kept("runs, sessions and transcripts", None),
            _kept("definitions and their versions", None),
            _kept("entries of memory", None),
            *(_kept(what, timedelta(milliseconds=ms)) for one in all_families() for what, ms in one.kept_ms.items()),
            _kept("the feed of changes of memory", timedelta(hours=memory_changes_hours)),
            _kept("idempotency keys of requests", timedelta(seconds=request_keys.LIFETIME_S)),
            _kept("samples of metrics", timedelta(seconds=metric_samples.LIFETIME_S)),
        ],
    }


def _kept(what: str, how_long: timedelta | None) -> Kept:
    return {"what": what, "max_age_ms": None if how_long is None else int(how_long.total_seconds() * 1000)}
