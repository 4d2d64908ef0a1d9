"""Kafka: topics of a real broker with the same faces as the embedded log.

    connection   an address and its secrets; clients; what went wrong, in words
    topics       topics created or checked, their ends, their readers
    reader       ranges of a topic as Arrow columns, in workers
    sender       records handed to librdkafka
    writer       the outputs of batches, each batch in one transaction
    group        how far the consumer group has read, for lag tools
    clients      a producer and a consumer for Python programs

Importing this package imports confluent-kafka; nothing else does.
"""
