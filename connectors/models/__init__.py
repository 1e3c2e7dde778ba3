"""The drivers of model providers: what a turn looks like on each wire, behind connectors.protocols.Model.

    wire       connections, timeouts, bounds                sse       bytes to server-sent events
    failures   statuses and errors to Transient/Permanent   foreign   reading JSON whose shape is not ours
    exchange   what both wires need of a conversation       tool_schema  schemas every provider takes
    anthropic  with anthropic_request, _reply, _thinking: a request to a body, events to one Reply
    openai     with openai_request, _reply; deepseek is a dialect of it
    mock       synthetic models without a network: mock_script, mock_reviewer with mock_findings and mock_report
    catalog    configuration to Model objects               pricing   tokens to money

A driver never retries: the run decides, so that the log shows it.
"""
