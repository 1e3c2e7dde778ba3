"""The tool through which a model gives a record as its final answer, for providers that have no other way.

A provider that takes a schema for its answers gets it (`response_format` and the like). The others, and those that take
none beside tools, get one more tool with the schema as its input; a call of it is the final answer. Either way a record
costs no further turn. The call never reaches the run: it becomes the text of the answer.

Before: the drivers add the tool. After: services/runtime/models/model_calls.py reads the call.
"""

from loomlog.connectors.protocols import ModelRequest, Reply, ToolSpec
from loomlog.schemas.records import replace

OUTPUT_TOOL = "final_answer"
"""Name of the tool; tools of ours begin with a capital letter, those of clients and servers with a prefix."""
OUTPUT_TOOL_TEXT = (
    "Gives the final answer, as this record. Call it alone, once nothing else is to be done: the call ends the work, "
    "and text beside it is not read."
)


def with_output_tool(request: ModelRequest) -> ModelRequest:
    """Return a request with the tool in place of its output schema; unchanged without a schema."""
    if request.output_schema is None:
        return request
    tool = ToolSpec(name=OUTPUT_TOOL, description=OUTPUT_TOOL_TEXT, input_schema=request.output_schema)
    return replace(request, tools=(*request.tools, tool), output_schema=None, must_call_tool=True)


def read_output(reply: Reply) -> Reply:
    """Return the reply with a call of the tool as its text. Beside other calls it was too early and is left out: the
    model answers again with their results.
    """
    answers = [call for call in reply.tool_calls if call.name == OUTPUT_TOOL]
    if not answers:
        return reply
    others = tuple(call for call in reply.tool_calls if call.name != OUTPUT_TOOL)
    # The signature is that of the reply with the call.
    if others:
        return replace(reply, tool_calls=others, reasoning_signature="")
    return replace(reply, text=answers[0].input, tool_calls=(), stop_reason="end_turn", reasoning_signature="")
