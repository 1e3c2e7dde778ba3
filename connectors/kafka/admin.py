"""Questions to the cluster that need no client of their own for long."""

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from connectors.errors import Transient
from connectors.kafka.clients import start
from connectors.kafka.options import KafkaOptions


async def topic_partitions(options: KafkaOptions, topic: str) -> int:
    """Partitions of a topic; 0 when it does not exist. Raises Transient when the broker does not answer."""
    admin = AIOKafkaAdminClient(**options.client_arguments())
    await start(admin, "admin", options)
    try:
        found = await admin.describe_topics([topic])
    except (KafkaError, OSError) as error:
        raise Transient(f"describe {topic}: {type(error).__name__}: {error}", kind="unavailable") from error
    finally:
        await admin.close()
    return len(found[0]["partitions"]) if found and found[0]["error_code"] == 0 else 0
