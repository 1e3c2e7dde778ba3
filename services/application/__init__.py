"""The application layer below all transports: use cases with authentication, authorization and validation.

It has no process of its own. HTTP uses it now, gRPC and MCP later; authentication, authorization, validation,
idempotency and tenant checks are here, so that no transport can omit them. `application.Application` is the entry
point.

    a start:     request -> checked -> StartRun in the log -> the owner's deciding event on the hub -> frames
    a read:      barrier (the projections have passed what this process has seen) -> rows -> values
"""
