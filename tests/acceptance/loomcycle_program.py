"""Drives a stack with the client of loomcycle 1.58.0, which is in an environment of its own; prints one JSON object.

python loomcycle_program.py HOST:PORT
"""

import asyncio
import json
import sys
from typing import Any

import loomcycle
from loomcycle import errors

CARD = {"op": "create", "name": "grpc-made", "overlay": {"provider": "mock", "model": "mock-generic", "tools": []}}


def segments(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "trusted-text", "text": text}]}]


async def refused(work: Any) -> str:
    """The class of the client's exception."""
    try:
        if hasattr(work, "__aiter__"):
            async for _ in work:
                pass
        else:
            await work
    except errors.LoomcycleError as error:
        return type(error).__name__
    return "nothing"


async def drive(client: Any) -> dict[str, Any]:
    handles: list[Any] = []
    run = client.run_streaming(agent="talker", segments=segments("hi"), user_id="ada", on_handle=handles.append)
    events = [event.type async for event in run]
    first = handles[0]
    go_on = client.continue_session(session_id=first.session_id, segments=segments("on"), on_handle=handles.append)
    continued = [event.type async for event in go_on]
    made = await client.agent_def(CARD)
    channel = "acceptance/issues"
    published = await client.publish_channel(channel, payload=b'{"n": 1}', scope="tenant")
    batch = await client.spawn_run_batch([{"agent": "talker", "segments": segments(str(n))} for n in range(3)])
    hook = await client.register_hook(owner="t", name="h", phase="pre", callback_url="https://hooks.example/x")
    await client.set_token_limit(scope="user", scope_id="ada", hard_limit=1_000_000)
    snapshot = await client.create_snapshot(description="d")
    envelope = await client.get_snapshot(snapshot["snapshot_id"])
    await client.pause_runtime(timeout_ms=1_000)
    paused = (await client.get_runtime_state())["status"]
    again = await refused(client.pause_runtime())
    await client.resume_runtime()
    return {
        "health": (await client.health())["ok"],
        "events": events,
        "continued": [continued, handles[1].session_id == first.session_id],
        "again": [event.type async for event in client.stream_run(first.run_id)],
        "agent": (await client.get_agent(handles[1].agent_id))["status"],
        "agents": len(await client.list_user_agents("ada")),
        "transcript": len(await client.get_transcript(first.session_id)),
        "definition": [
            made["version"],
            [e.type async for e in client.run_streaming(agent="grpc-made", segments=segments("x"))],
        ],
        "channel": [published["channel"], len((await client.peek_channel(channel, scope="tenant"))["messages"])],
        "channels": channel in [one["name"] for one in await client.list_channels()],
        "batch": [batch["spawned"], [result["status"] for result in batch["results"]]],
        "hooks": [[one["name"] for one in await client.list_hooks()], await client.delete_hook(hook["id"])],
        "limits": [[one["hard_limit"] for one in await client.list_token_limits()]],
        "usage": bool(await client.usage_report(group_by=["user"])),
        "snapshot": [json.loads(envelope["json_content"]) != {}, await client.delete_snapshot(snapshot["snapshot_id"])],
        "directory": [
            "ada" in [one["subject"] for one in (await client.directory_users())["users"]],
            (await client.directory_inspect("ada"))["activity"]["subject"],
        ],
        "probe": "mock" in (await client.resolve_probe())["providers"],
        "paused": [paused, again],
        "refusals": {
            "agent": await refused(client.get_agent("my-session-7")),
            "session": await refused(client.continue_session(session_id="s_none", segments=segments("x"))),
            "snapshot": await refused(client.get_snapshot("none")),
            "hook": await refused(client.delete_hook("none")),
            "argument": await refused(client.run_streaming(agent="ghost", segments=segments("x"))),
            "tool": await refused(client.agent_def({"op": "dance"})),
            "not paused": await refused(client.resume_runtime()),
            "later": await refused(client.path({"op": "ls", "path": "/"})),
        },
    }


async def main(address: str) -> None:
    client = loomcycle.LoomcycleClient(target=address)
    try:
        print(json.dumps(await drive(client)))
    finally:
        await client.close()


asyncio.run(main(sys.argv[1]))
