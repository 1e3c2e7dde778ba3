"""The one command layer under all transports: what may be asked of loomlog, by whom, and what it takes to say yes.

It has no process of its own. HTTP uses it now, gRPC and MCP later; authentication, authorisation, validation,
idempotency and tenant checks are in here, so that a transport cannot forget them. `layer.Application` is the way in.

    a start:     request -> checked -> StartRun in the log -> the owner's deciding event on the hub -> frames
    a read:      barrier (the projections have passed what this process has seen) -> rows -> values
"""
