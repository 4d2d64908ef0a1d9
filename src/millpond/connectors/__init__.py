"""The edges: serializers, the embedded log, sources and sinks. Nothing here knows Spark."""
