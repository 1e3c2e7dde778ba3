"""gRPC: the same operations and streams as over HTTP, for clients of loomcycle.v1.Loomcycle.

    main       the process
    server     the listener: limits, TLS, health, reflection
    front      what all RPCs share: caller, request, shares, refusals
    rpcs       the table: a row for each RPC
    streams    the RPCs that stream
    operations what is an operation only here
    messages   messages <-> JSON values
    refusals   refusals as clients tell them apart

Decision 65. Before: the environment. After: services/application.
"""
