"""What is kept of many records, and the result that it gives: `Sum("amount")`.

An aggregation takes a state, the value of a record and its timestamp, and gives the next state;
from a state it gives a result. States hold only types that the codec of state keeps exactly. The
same records give the same result however they are cut into runs: sums are exact, not rounded on
the way.
"""

from millpond.aggregations.base import Aggregation, no_add
from millpond.aggregations.collect import Collect, Items
from millpond.aggregations.count import Count
from millpond.aggregations.count_distinct import CountDistinct
from millpond.aggregations.first_last import Earliest, First, Last, Latest
from millpond.aggregations.mean import Mean
from millpond.aggregations.min_max import Max, Min
from millpond.aggregations.reduce import Reduce
from millpond.aggregations.sum import Sum
from millpond.aggregations.variance import StdDev, Variance

__all__ = [
    "Aggregation",
    "Collect",
    "Count",
    "CountDistinct",
    "Earliest",
    "First",
    "Items",
    "Last",
    "Latest",
    "Max",
    "Mean",
    "Min",
    "Reduce",
    "StdDev",
    "Sum",
    "Variance",
    "no_add",
]
