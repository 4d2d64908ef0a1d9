"""The only package that imports pyspark. Refuses another version of it before it is imported."""

from millpond.spark.versions import check_installed

check_installed()
