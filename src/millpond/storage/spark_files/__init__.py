"""The files of a checkpoint as Spark 4.3 writes them, one module for each kind.

Takes text and names of files; gives what is in them. Nothing here imports Spark or knows a session:
what touches the running Spark is in `spark.internals`, which also fixes the settings that choose
between formats (`spark.internals.settings.FORMATS`).

A file in a format that is not known here is `UnsupportedCheckpointError`, never damage.
"""
