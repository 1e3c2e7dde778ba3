"""The drivers of model providers: what a turn looks like on each wire, behind loomlog.connectors.protocols.Model.

    wire       connections, timeouts, bounds                json_lines        bytes to frames
    failures   statuses and errors to Transient/Permanent   foreign   reading JSON whose shape is not ours
    exchange   what all wires need of a conversation        tool_schema  schemas every provider takes
    anthropic  with anthropic_request, _reply, _thinking: a request to a body, events to one Reply
    openai     with openai_request, _reply; deepseek is a dialect of it, and so is any gateway
    gemini     with gemini_request, _reply, _schema, _thoughts
    ollama     with ollama_request, _reply, written_calls
    mock       synthetic models without a network: mock_script, mock_circuit, mock_reviewer, mock_findings, mock_report
    traits     what a model can do, by driver and name      catalog   configuration to Model objects
    pricing    tokens to money

A driver never retries: the run decides, so that the log shows it.
"""
