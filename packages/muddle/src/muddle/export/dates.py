"""The six parts of a date (preprocessing/dates.py) by whole-number arithmetic in a graph."""

import numpy as np
from onnx import TensorProto

from muddle.export.graph import Graph, Value

MICROSECONDS = 1e6
DAY = 86_400 * MICROSECONDS
N_PARTS = 6


def write_date_parts(graph: Graph, seconds: Value) -> Value:
    """Seconds since 1970 (N, D) -> elapsed days, years, months, weekdays, days of the year and
    hours, each of all D dates, (N, 6 D). NaN stays NaN all the way.

    Numbers are float64 and whole up to 2**53 microseconds, the year 2255; later ones are off by
    less than a millisecond.
    """
    moment = snap_to_microseconds(graph, seconds)
    since_midnight = _positive_rest(graph, moment, DAY)
    days = _divide(graph, graph.add("Sub", moment, since_midnight), DAY)
    years, months = _year_and_month(graph, days)
    day_of_year = graph.add("Sub", days, _new_year(graph, years))
    weekday = _rest(graph, graph.add("Add", days, _number(3)), 7)  # 1970 began on a Thursday
    parts = [
        _divide(graph, moment, DAY),
        years,
        months,
        weekday,
        graph.add("Add", day_of_year, _number(1)),
        _divide(graph, since_midnight, 3600 * MICROSECONDS),
    ]
    return graph.join(parts)


def snap_to_microseconds(graph: Graph, seconds: Value) -> Value:
    return graph.add("Round", graph.add("Mul", seconds, _number(MICROSECONDS)))


def _year_and_month(graph: Graph, days: Value) -> tuple[Value, Value]:
    """Year and month of days since 1970, after Hinnant's civil_from_days: years begin in March, so
    that the leap day is the last, and eras of 400 years are all alike."""
    since_0000 = graph.add("Add", days, _number(719_468))
    era = _whole(graph, since_0000, 146_097)
    day = _rest_of(graph, since_0000, era, 146_097)
    leaps = graph.add("Sub", _whole(graph, day, 36_524), _whole(graph, day, 1_460))
    leaps = graph.add("Sub", leaps, _whole(graph, day, 146_096))
    year = _whole(graph, graph.add("Add", day, leaps), 365)
    day_of_year = graph.add("Sub", day, _days_before(graph, year))
    fifth = graph.add("Add", graph.add("Mul", day_of_year, _number(5)), _number(2))
    month = _whole(graph, fifth, 153)  # 0 is March
    next_year = graph.add("GreaterOrEqual", month, _number(10))
    next_year = graph.cast(next_year, TensorProto.DOUBLE)
    year = graph.add("Add", year, graph.add("Mul", era, _number(400)))
    month = graph.add("Sub", month, graph.add("Mul", next_year, _number(12)))
    return graph.add("Add", year, next_year), graph.add("Add", month, _number(3))


def _days_before(graph: Graph, year: Value) -> Value:
    """Days of an era before this year of it, which begins in March."""
    days = graph.add("Mul", year, _number(365))
    days = graph.add("Add", days, _whole(graph, year, 4))
    return graph.add("Sub", days, _whole(graph, year, 100))


def _new_year(graph: Graph, years: Value) -> Value:
    """Days since 1970 of the first of January."""
    before = graph.add("Sub", years, _number(1))
    days = graph.add("Mul", before, _number(365))
    days = graph.add("Add", days, _whole(graph, before, 4))
    days = graph.add("Sub", days, _whole(graph, before, 100))
    days = graph.add("Add", days, _whole(graph, before, 400))
    return graph.add("Sub", days, _number(719_162))


def _number(value: float) -> np.ndarray[tuple[()], np.dtype[np.float64]]:
    return np.array(value, dtype=np.float64)


def _divide(graph: Graph, value: Value, divisor: float) -> Value:
    return graph.add("Div", value, _number(divisor))


def _whole(graph: Graph, value: Value, divisor: float) -> Value:
    return graph.add("Floor", _divide(graph, value, divisor))


def _rest_of(graph: Graph, value: Value, times: Value, divisor: float) -> Value:
    return graph.add("Sub", value, graph.add("Mul", times, _number(divisor)))


def _rest(graph: Graph, value: Value, divisor: float) -> Value:
    return _rest_of(graph, value, _whole(graph, value, divisor), divisor)


def _positive_rest(graph: Graph, value: Value, divisor: float) -> Value:
    """As `_rest`, exact where the quotient would be rounded up to the next whole number."""
    rest = graph.add("Mod", value, _number(divisor), fmod=1)
    negative = graph.add("Less", rest, _number(0))
    return graph.add("Where", negative, graph.add("Add", rest, _number(divisor)), rest)
