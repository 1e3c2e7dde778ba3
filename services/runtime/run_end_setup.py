"""What the ends of runs lead to in a runtime process: hooks, reports to schedules and webhooks, callbacks.

Before: main.py. After: run/run_end_actions.py, run/end_hooks.py, run/callback_posts.py.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from loomlog.connectors.configuration.load import ProcessConfiguration
from loomlog.connectors.http.signed_callbacks import CallbackClient
from loomlog.connectors.storage.blobs import FileBlobs
from loomlog.schemas.codec import Codec
from loomlog.schemas.generated.schedule_commands import NoteRunEnded as NoteRunOfSchedule
from loomlog.schemas.generated.webhook_commands import NoteRunEnded as NoteRunOfWebhook
from loomlog.services.families.callback.sends import RECEIVER
from loomlog.services.families.schedule.state import FAMILY_NAME as SCHEDULE
from loomlog.services.families.webhook.state import FAMILY_NAME as WEBHOOK
from loomlog.services.runtime.content.encryption import ContentEncryption
from loomlog.services.runtime.entity_hosting import EntityResources
from loomlog.services.runtime.run.callback_posts import CallbackPosts
from loomlog.services.runtime.run.end_hooks import Entries, Publisher, RunEndHooks, ToolCaller
from loomlog.services.runtime.run.run_end_actions import RunEndActions
from loomlog.services.stream.entities.hosting import HostedEntities
from loomlog.services.stream.partition.ended_aggregates import EndedAggregates

TRIGGERS = {SCHEDULE: NoteRunOfSchedule, WEBHOOK: NoteRunOfWebhook}
"""Families whose aggregates start runs, and the command that tells them of an end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEndSetup:
    """What a runtime has for the ends of runs."""

    actions: RunEndActions
    posts: CallbackPosts
    client: CallbackClient

    def attach(self, hosted: Iterable[HostedEntities]) -> None:
        """Take the attempts of callbacks whose aggregates are owned here."""
        for one in hosted:
            one.receivers[RECEIVER] = self.posts.receive

    def start_tasks(self, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Start carrying out actions and making attempts."""
        return [
            tasks.create_task(self.actions.run(), name="actions at the ends of runs"),
            tasks.create_task(self.posts.run(), name="callbacks"),
        ]

    async def close(self) -> None:
        """Close connections; requests under way fail."""
        await self.client.close()


def open_run_ends(
    loaded: ProcessConfiguration,
    entities: EntityResources,
    ended_runs: EndedAggregates,
    codec: Codec,
    *,
    publisher: Publisher,
    entries: Entries,
    tools: ToolCaller,
    encryption: ContentEncryption,
    is_isolated: Callable[[str, str], bool],
    clock_ms: Callable[[], int],
) -> RunEndSetup:
    """Build everything over the entities of this process. Raises OSError without a folder of payloads."""
    settings, commands = loaded.settings, entities.parts.client
    hooks = RunEndHooks(
        commands,
        publisher,
        entries,
        FileBlobs(settings.effective_blob_folder),
        tools,
        encryption=encryption,
        is_isolated=is_isolated,
        clock_ms=clock_ms,
    )
    client = CallbackClient(private_hosts=settings.http_private_host_allowlist)
    return RunEndSetup(
        actions=RunEndActions(commands, hooks, ended_runs, codec, triggers=TRIGGERS),
        posts=CallbackPosts(
            commands,
            entities.reads,
            client,
            decrypt=encryption.decrypt_text,
            secrets=loaded.secret_registry,
            clock_ms=clock_ms,
        ),
        client=client,
    )
