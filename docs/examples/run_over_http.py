"""Start a run over HTTP, show it while it works, answer its questions, and print the result.

In the top folder of a clone:

    pip install ./connectors/client
    python docs/examples/run_over_http.py --agent assistant "What is a term?"

LOOMLOG_BASE_URL and LOOMLOG_TOKEN name another API and its token. Kill the api or a runtime while this runs: the stream
reconnects and continues.
"""

import argparse
import asyncio
import os
import sys

from loomlog_client import ApiError, Client, ClientError, Frame, Run


async def show(run: Run, frame: Frame) -> None:
    """Print a frame; ask the person at the terminal what the agent asks."""
    match frame.name:
        case "agent":
            print(f"run {run.run_id}", file=sys.stderr)
        case "tool_call":
            print(f"calls {frame.data['tool_use']['name']}", file=sys.stderr)
        case "reconnected" | "waiting" | "retry":
            print(f"{frame.name}: {frame.data.get('error', '')}", file=sys.stderr)
        case "interruption_pending":
            question = frame.data["interruption"]
            answer = await asyncio.to_thread(input, f"{question['question']} ")
            try:
                await run.answer(question["interrupt_id"], answer)
            except ApiError as error:  # answered by another person, or the question has expired
                print(error, file=sys.stderr)


async def main() -> int:
    parser = argparse.ArgumentParser(description="Start a run over HTTP and print its result.")
    parser.add_argument("prompt")
    parser.add_argument("--agent", default="assistant")
    parser.add_argument("--session", default="", help="continue this session (s_...)")
    options = parser.parse_args()
    url = os.environ.get("LOOMLOG_BASE_URL", "http://127.0.0.1:18787")
    try:
        async with Client(url, os.environ.get("LOOMLOG_TOKEN", "")) as client:
            run = await client.start_run(options.agent, options.prompt, session_id=options.session)
            result = await run.result(on_frame=lambda frame: show(run, frame))
    except ClientError as error:
        print(error, file=sys.stderr)
        return 1
    print(result.text or result.error)
    return 0 if result.status == "completed" else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
