"""Topics and consumer group of a runtime.

They are looked up here when a process starts, so that tests can give an installation its own names.

Before: redpanda/topics.yaml makes them. After: resources.py opens them, process.py passes them to the writers.
"""

from loomlog.services.stream.family import Topics

INGRESS_TOPIC = "loom.ingress"
INGRESS_GROUP = "loomlog-ingress"
"""Consumer group of the readers of what comes from outside; its offsets are committed."""
GROUP = "loomlog-runtime"
"""Consumer group whose assignments hint at ownership."""
TOPICS = Topics.of("run")
ENTITY_TOPICS = Topics.of("entity")
CHANNEL_TOPICS = Topics.of("channel")
DELTAS_TOPIC = "loom.run.deltas"
SUBJECTS_TOPIC = "loom.subject.keys"
PROVIDERS_TOPIC = "loom.provider.events"
CLIENTS_TOPIC = "loom.client.events"
TALLY_TOPIC = "loom.insights.runs"
CLOCK_TOPIC = "loom.clock"
