"""Cluster administration with short-lived clients."""

from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from loomlog.connectors.errors import Transient
from loomlog.connectors.kafka.clients import start
from loomlog.connectors.kafka.options import KafkaOptions


async def count_partitions(options: KafkaOptions, topic: str) -> int:
    """Return the number of partitions of a topic; 0 when it does not exist. Raises Transient when the broker does not
    answer.
    """
    admin = AIOKafkaAdminClient(**options.client_arguments())
    await start(admin, "admin", options)
    try:
        descriptions = await admin.describe_topics([topic])
    except (KafkaError, OSError) as error:
        raise Transient(f"describe {topic}: {type(error).__name__}: {error}", kind="unavailable") from error
    finally:
        await admin.close()
    return len(descriptions[0]["partitions"]) if descriptions and descriptions[0]["error_code"] == 0 else 0


async def delete_records(options: KafkaOptions, topic: str, partition: int, *, before: int) -> None:
    """Delete the records of a partition below an offset, permanently. After Transient they may be deleted or not."""
    admin = AIOKafkaAdminClient(**options.client_arguments())
    await start(admin, "admin", options)
    try:
        await admin.delete_records({TopicPartition(topic, partition): RecordsToDelete(before)})
    except (KafkaError, OSError) as error:
        problem = f"delete the records of {topic}/{partition} below {before}: {type(error).__name__}: {error}"
        raise Transient(problem, kind="unavailable") from error
    finally:
        await admin.close()
