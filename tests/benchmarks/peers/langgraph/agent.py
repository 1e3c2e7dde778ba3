"""A3x2 on LangGraph: a graph of model and tools over MessagesState, checkpointed in Postgres with durability "sync".

As its documentation recommends: AsyncPostgresSaver on a connection pool, one thread a run, a checkpoint written before
the next step begins. LangGraph is a library: client and worker are one process.

    python -m tests.benchmarks.peers.langgraph.agent DSN IN_FLIGHT WARM_UP_S SECONDS      in its own environment
"""

import json
import sys
import uuid
from importlib.metadata import version
from typing import Any, Literal

import uvloop
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from tests.benchmarks.closed_loop import measure, tell
from tests.benchmarks.workload import PROMPT, step_text

TOOL_CALLS = 2
POOL_MOST = 16


async def model(state: MessagesState) -> dict[str, Any]:
    """A turn that asks for the tool until it was called twice."""
    called = sum(isinstance(message, ToolMessage) for message in state["messages"])
    if called < TOOL_CALLS:
        call = {"name": "bench", "args": {}, "id": uuid.uuid4().hex}
        return {"messages": [AIMessage(content=step_text(), tool_calls=[call])]}
    return {"messages": [AIMessage(content=step_text())]}


async def tools(state: MessagesState) -> dict[str, Any]:
    last = state["messages"][-1]
    assert isinstance(last, AIMessage)
    return {"messages": [ToolMessage(content=step_text(), tool_call_id=call["id"]) for call in last.tool_calls]}


def what_next(state: MessagesState) -> Literal["tools", "__end__"]:
    last = state["messages"][-1]
    return "tools" if isinstance(last, AIMessage) and last.tool_calls else "__end__"


async def main(dsn: str, in_flight: int, warm_up_s: float, seconds: float) -> None:
    settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    async with AsyncConnectionPool(dsn, min_size=4, max_size=POOL_MOST, timeout=60, kwargs=settings) as pool:
        saver = AsyncPostgresSaver(pool)  # type: ignore[arg-type]  # the pool's rows are dicts, by row_factory
        await saver.setup()
        builder = StateGraph(MessagesState)
        builder.add_node("model", model)
        builder.add_node("tools", tools)
        builder.add_edge(START, "model")
        builder.add_conditional_edges("model", what_next, {"tools": "tools", "__end__": END})
        builder.add_edge("tools", "model")
        graph = builder.compile(checkpointer=saver)

        async def run_once() -> None:
            beginning: Any = {"messages": [HumanMessage(content=PROMPT)]}
            ended = await graph.ainvoke(beginning, {"configurable": {"thread_id": uuid.uuid4().hex}}, durability="sync")
            assert len(ended["messages"]) == 6, "the prompt, three turns, two results"

        measured = await measure(run_once, in_flight=in_flight, warm_up_s=warm_up_s, seconds=seconds, mark=tell)
    versions = {name: version(name) for name in ("langgraph", "langgraph-checkpoint-postgres", "psycopg", "uvloop")}
    print(json.dumps(measured.as_json() | {"versions": versions, "took_ms": measured.took_ms}), flush=True)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])))
