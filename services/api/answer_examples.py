"""Examples of answers that have no class of their own, by their name in the document.

Those with a class have an example that is made from it (schema_examples.py). Before: openapi.py. After: the document.
"""

from collections.abc import Mapping
from typing import Any

ANSWER_EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    "Channels": {
        "channels": [
            {
                "name": "orders",
                "description": "New orders.",
                "scope": "tenant",
                "semantic": "queue",
                "publisher": "",
                "period": "",
                "default_ttl": 60,
                "max_messages": 100,
                "source": "runtime",
                "message_count": 3,
            }
        ],
    },
    "AgentCursors": {
        "agent": "helper",
        "channels": [
            {
                "channel": "notes",
                "scope": "agent",
                "scope_id": "helper",
                "reader": "",
                "cursor": "cur_18fae27693b40001_msg_18fae27693b4000116b6abc0",
                "behind": 1,
            }
        ],
    },
    "Channel": {
        "name": "mine",
        "description": "e",
        "scope": "tenant",
        "semantic": "queue",
        "publisher": "",
        "period": "",
        "default_ttl": 60,
        "max_messages": 9,
        "source": "runtime",
        "message_count": 0,
    },
    "ChannelAcknowledged": {"ok": True},
    "ChannelAwaited": {
        "satisfied": False,
        "timed_out": True,
        "mode": "all",
        "fired": ["research/c1"],
        "results": {
            "plaza": {"messages": [], "next_cursor": ""},
            "research/c1": {
                "messages": [
                    {
                        "id": "msg_18fae27693b40001395e1df6",
                        "value": "x",
                        "published_at": "2027-01-15T08:00:00.000000001Z",
                    }
                ],
                "next_cursor": "cur_18fae27693b40001_msg_18fae27693b40001395e1df6",
            },
        },
        "total_messages": 1,
    },
    "ChannelBatch": {
        "channel": "research/c1",
        "messages": [
            {"id": "msg_18fae27693b40001395e1df6", "value": "x", "published_at": "2027-01-15T08:00:00.000000001Z"}
        ],
        "next_cursor": "cur_18fae27693b40001_msg_18fae27693b40001395e1df6",
    },
    "ChannelBroadcasted": {
        "published": 2,
        "failed": 0,
        "results": [
            {"channel": "plaza", "message_id": "msg_18fae27693b400015decc5b3", "dropped_oldest": 0},
            {"channel": "research/c1", "message_id": "msg_18fae27693b40001395e1df6", "dropped_oldest": 0},
        ],
    },
    "ChannelMessages": {
        "channel": "plaza",
        "messages": [
            {
                "id": "msg_18fae27693b400054c37b1c6",
                "value": 4,
                "published_at": "2027-01-15T08:00:00.000000005Z",
                "cursor": "cur_18fae27693b40005_msg_18fae27693b400054c37b1c6",
                "position": "loom.entity.events/1:5",
            },
            {
                "id": "msg_18fae27693b4000425811e48",
                "value": 3,
                "published_at": "2027-01-15T08:00:00.000000004Z",
                "cursor": "cur_18fae27693b40004_msg_18fae27693b4000425811e48",
                "position": "loom.entity.events/1:4",
            },
        ],
        "next_cursor": "cur_18fae27693b40004_msg_18fae27693b4000425811e48",
    },
    "ChannelPublished": {
        "msg_id": "msg_18fae27693b4000116b6abc0",
        "channel": "notes",
        "created_at": "2027-01-15T08:00:00.000000001Z",
    },
    "ChannelPurged": {"name": "plaza", "purged": 1},
    "ChannelQueues": {
        "channel": "inbox",
        "scope": "user",
        "queues": [
            {
                "scope": "user",
                "scope_id": "ann",
                "message_count": 1,
                "delayed": 0,
                "leased": 0,
                "waiting": 0,
                "awaiting": 0,
                "readers_count": 0,
                "published": 1,
                "oldest_visible_at": "2027-01-15T08:00:00.000000001Z",
                "newest_visible_at": "2027-01-15T08:00:00.000000001Z",
            },
            {
                "scope": "user",
                "scope_id": "bob",
                "message_count": 1,
                "delayed": 0,
                "leased": 0,
                "waiting": 0,
                "awaiting": 0,
                "readers_count": 0,
                "published": 1,
                "oldest_visible_at": "2027-01-15T08:00:00.000000001Z",
                "newest_visible_at": "2027-01-15T08:00:00.000000001Z",
            },
        ],
        "next": "bob",
    },
    "ChannelReaders": {
        "scope": "global",
        "scope_id": "",
        "message_count": 3,
        "delayed": 1,
        "leased": 3,
        "waiting": 0,
        "awaiting": 0,
        "readers_count": 2,
        "published": 4,
        "oldest_visible_at": "2027-01-15T08:00:00.000000001Z",
        "newest_visible_at": "2027-01-15T08:00:00.000000003Z",
        "next_visible_at": "2027-01-15T08:01:00.000000000Z",
        "channel": "plaza",
        "readers": [
            {
                "channel": "plaza",
                "scope": "global",
                "scope_id": "",
                "reader": "",
                "cursor": "cur_18fae27693b40001_msg_18fae27693b400015decc5b3",
                "behind": 2,
                "waiting": 0,
                "leased": 1,
            },
            {
                "channel": "plaza",
                "scope": "global",
                "scope_id": "",
                "reader": "audit",
                "cursor": "cur_18fae27693b40002_msg_18fae27693b40002364f447b",
                "behind": 1,
                "waiting": 0,
                "leased": 2,
            },
        ],
    },
    "CloudEventAnswer": {"id": "1", "source": "/shop", "delivery_id": "/shop#1", "webhook": "issues"},
    "MemoryAt": {
        "scope": "user",
        "scope_id": "ada",
        "key": "k",
        "existed": True,
        "value": "two",
        "version": {
            "bytes": 5,
            "revision": 2,
            "op": "set",
            "provenance": None,
            "source": {"origin": "operator", "principal": "operator"},
            "position": "loom.entity.events/1:2",
            "at": "2027-01-15T08:01:00.000Z",
            "previous_revision": 1,
            "value": "two",
        },
    },
    "MemoryEntries": {
        "scope": "user",
        "scope_id": "ada",
        "entries": [
            {
                "key": "preferences/tea",
                "value": "green",
                "created_at": "2027-01-15T08:00:00.000Z",
                "updated_at": "2027-01-15T08:00:00.000Z",
            }
        ],
        "truncated": False,
    },
    "MemoryEntry": {
        "scope": "user",
        "scope_id": "ada",
        "entry": {
            "key": "preferences/tea",
            "value": "green",
            "created_at": "2027-01-15T08:00:00.000Z",
            "updated_at": "2027-01-15T08:00:00.000Z",
            "revision": 1,
            "bytes": 7,
            "embed": False,
            "source": {"origin": "operator", "principal": "operator"},
            "provenance": None,
        },
    },
    "MemoryScopeDropped": {"scope": "user", "scope_id": "ada", "dry_run": True, "keys": 3, "bytes": 3},
    "MemoryScopeIds": {
        "scope": "user",
        "scope_ids": [
            {"scope_id": "ada", "key_count": 2, "bytes": 10, "updated_at": "2027-01-15T08:00:00.000Z"},
            {"scope_id": "bob", "key_count": 1, "bytes": 1, "updated_at": "2027-01-15T08:00:00.000Z"},
        ],
    },
    "MemoryScopes": {
        "scopes": [
            {"name": "agent", "description": "What an agent keeps over all its runs."},
            {"name": "user", "description": "What is kept of a user, over all agents."},
        ]
    },
    "MemoryUsage": {
        "scope": "user",
        "scope_id": "ada",
        "usage": {"bytes": 851974, "quota_bytes": 1048576, "keys": 14},
        "usage_warning": "the scope has 851974 of 1048576 bytes: delete what is not needed",
        "keys_max": 10000,
    },
    "MemoryWritten": {"scope": "user", "scope_id": "ada", "key": "preferences/tea", "embedded": False},
    "ScheduleFiredNow": {
        "def_id": "def_80bc06fb1ea06314",
        "scheduled": "next-tick",
        "run_id": "r_6tj96esbf4jg4y8db534bsdwk8",
    },
    "ScheduleFires": {
        "def_id": "def_80bc06fb1ea06314",
        "name": "nightly",
        "fires": [
            {
                "instant": "2027-01-15T08:00:00.000Z",
                "fired_at": "2027-01-15T08:00:00.000Z",
                "late_ms": 0,
                "run_id": "r_6tj96esbf4jg4y8db534bsdwk8",
                "is_manual": True,
                "status": "running",
                "position": "loom.entity.events/1:3",
            },
            {
                "instant": "2027-01-15T08:00:00.000Z",
                "fired_at": "2027-01-15T08:00:00.000Z",
                "late_ms": 0,
                "run_id": "r_5dke681pbqe0fn73ckjfsxg7eb",
                "is_manual": True,
                "status": "running",
                "position": "loom.entity.events/1:2",
            },
        ],
        "next": None,
    },
    "ScheduleList": {
        "entries": [
            {
                "name": "filed",
                "tenant_id": "acme",
                "source": "static-only",
                "in_static": True,
                "in_substrate": False,
                "version_count": 0,
                "active_def_id": "def_3fa3ad43e193e02f",
                "latest_version": 0,
                "last_updated": "",
                "static_definition": {"agent": "assistant", "schedule": "0 3 * * *", "enabled": True},
            },
            {
                "name": "nightly",
                "tenant_id": "acme",
                "source": "dynamic-only",
                "in_static": False,
                "in_substrate": True,
                "version_count": 1,
                "active_def_id": "def_80bc06fb1ea06314",
                "latest_version": 1,
                "last_updated": "2026-05-28T20:26:40.000000000Z",
            },
        ]
    },
    "SchedulePauseState": {"def_id": "def_80bc06fb1ea06314", "paused": True},
    "SchedulePreview": {
        "def_id": "def_80bc06fb1ea06314",
        "name": "nightly",
        "times": "30 2 * * *",
        "timezone": "Europe/Berlin",
        "instants": [
            {
                "instant": "2027-01-16T01:30:00.000Z",
                "local": "2027-01-16T02:30:00+01:00",
                "fires_at": "2027-01-16T01:30:56.095Z",
                "jitter_ms": 56095,
            },
            {
                "instant": "2027-01-17T01:30:00.000Z",
                "local": "2027-01-17T02:30:00+01:00",
                "fires_at": "2027-01-17T01:30:08.533Z",
                "jitter_ms": 8533,
            },
        ],
    },
    "ScheduleState": {
        "def_id": "def_80bc06fb1ea06314",
        "name": "nightly",
        "tenant_id": "acme",
        "last_run_at": "2027-01-15T08:00:00.000000000Z",
        "last_run_id": "r_5dke681pbqe0fn73ckjfsxg7eb",
        "last_status": "failed",
        "last_error": "tool_failed: the disk is full",
        "next_run_at": "2027-01-15T09:00:00.000000000Z",
        "fires": 1,
        "max_fires": 0,
        "overlap": "skip",
        "running": [],
        "queued": [],
    },
    "ScheduleTimesPreview": {
        "times": "0 9 * * 1",
        "timezone": "Europe/Berlin",
        "instants": [
            {
                "instant": "2027-01-18T08:00:00.000Z",
                "local": "2027-01-18T09:00:00+01:00",
                "fires_at": "2027-01-18T08:00:00.000Z",
                "jitter_ms": 0,
            },
            {
                "instant": "2027-01-25T08:00:00.000Z",
                "local": "2027-01-25T09:00:00+01:00",
                "fires_at": "2027-01-25T08:00:00.000Z",
                "jitter_ms": 0,
            },
        ],
    },
    "WebhookAnswer": {
        "webhook_name": "open",
        "delivery_id": "sha256:1a39096b0216386eb7f1b4ffc37ed2bf7448f0a1a6dfa19a091a07bf032c4710",
        "run_id": "r_2jj1xj32hf75039grf2ewh8v94",
    },
    "WebhookDeliveries": {
        "webhook_name": "issues",
        "tenant_id": "acme",
        "deliveries": [
            {
                "delivery_id": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
                "verdict": "accepted",
                "received_at": "2027-01-15T08:00:00.000Z",
                "run_id": "r_2jj1xj32hf75039grf2ewh8v94",
                "def_id": "def_3fa3ad43e193e02f",
                "status": "completed",
                "position": "loom.entity.events/1:3",
                "source_position": "loom.ingress/0:7",
            },
        ],
    },
    "WebhookReplayed": {
        "webhook_name": "issues",
        "replay_of": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
        "delivery_id": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
        "run_id": "r_6tj96esbf4jg4y8db534bsdwk8",
        "channel": "",
    },
    "WebhookReport": {
        "would_accept": True,
        "verdict": "accepted",
        "delivery_id": "sha256:1a39096b0216386eb7f1b4ffc37ed2bf7448f0a1a6dfa19a091a07bf032c4710",
        "run_input_preview": {
            "agent": "assistant",
            "user_id": "",
            "goal": "x",
            "run_metadata": {},
            "credential_keys": [],
        },
    },
    "MemorySuperseded": {
        "scope": "user",
        "scope_id": "ada",
        "superseded": [
            {
                "key": "tea",
                "by_key": "tea/new",
                "revision": 3,
                "reason": "she said so",
                "op": "supersede",
                "value": "green",
                "previous_revision": 2,
                "position": "loom.entity.events/1:4",
                "at": "2027-01-15T08:00:00.000Z",
            }
        ],
        "next": None,
    },
    "MemoryHits": {
        "scope": "user",
        "scope_id": "ada",
        "entries": [{"key": "preferences/tea", "value": "green", "score": 0.82}],
    },
    "MemorySqlRows": {
        "scope": "user",
        "scope_id": "ada",
        "columns": ["id", "name", "raw"],
        "rows": [[1, "ada", {"$blob": "AA=="}], [2, "bob", None]],
        "truncated": False,
    },
    "MemoryEmbedStats": {
        "tenant": "default",
        "models": [
            {"provider": "openai", "model": "text-embedding-3-small", "dimension": 1536, "rows": 120, "bytes": 737280}
        ],
        "total_embedding_bytes": 737280,
    },
    "MemoryReembed": {
        "scope": "user",
        "scope_id": "ada",
        "dry_run": False,
        "rows_total": 120,
        "current_embedder": {"provider": "openai", "model": "text-embedding-3-small", "dimension": 1536},
        "rows_reembedded": 120,
        "rows_failed": 0,
    },
    "MemoryBackfillEmbeddings": {
        "scope": "user",
        "scope_id": "ada",
        "dry_run": False,
        "candidates": 3,
        "embedded": 3,
        "failed": 0,
        "skipped_empty": 0,
        "more": False,
    },
    "MemoryPurgeStaleEmbeddings": {
        "scope": "user",
        "scope_id": "ada",
        "dry_run": False,
        "scanned": 120,
        "stale": 4,
        "purged": 4,
        "truncated": False,
    },
}
