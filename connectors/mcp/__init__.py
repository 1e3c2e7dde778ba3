"""Client of MCP servers: tools of others, for agents.

frames.py           messages of JSON-RPC, in both eras of the protocol; pure
tool_list.py        what a server lists, within bounds; pure
call_result.py      what a call returned, as text for a model; pure
peer.py             requests in flight and their answers, over any transport
http_transport.py   one POST a message, answered by JSON or by server-sent events
stdio_transport.py  a process of this machine, a line a message
oauth.py            OAuth 2.1 as servers ask for it; pure
oauth_client.py     its requests, over the checked network
session.py          negotiation of the era, then tools/list and tools/call
session_pool.py     sessions of this process, opened when they are needed
"""
