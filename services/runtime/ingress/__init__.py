"""The reader of loom.ingress: what came from outside becomes commands for the owners of webhooks and channels.

    records.py      what a record says: one of ours, or a CloudEvent
    deliveries.py   the command of a delivery, from its webhook's definition
    reader.py       the loop: read, ask the owners, commit

Before: services/application/webhooks.py appends, and so does anything else that writes to the topic.
"""
