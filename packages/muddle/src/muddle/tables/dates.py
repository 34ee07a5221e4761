"""Calendar and clock of a date, as numbers."""

import numpy as np

from muddle.tables.checks import FloatArray
from muddle.tables.columns import Dates

PARTS = ("elapsed", "year", "month", "day_of_week", "day_of_year", "time_of_day")
SECOND = np.timedelta64(1, "s")
DAY = np.timedelta64(1, "D")


def date_parts(dates: Dates) -> FloatArray:
    """(N, 6): days since 1970, year, month 1-12, weekday 0-6 from Monday, day of the year from 1,
    hours since midnight; NaN where the date is missing."""
    days = dates.astype("M8[D]")
    months = dates.astype("M8[M]")
    years = dates.astype("M8[Y]")
    since_midnight = (dates - days) / SECOND
    elapsed = (days - np.datetime64(0, "D")) / DAY
    columns = (
        elapsed + since_midnight / 86400,
        years.astype(np.float64) + 1970,
        months.astype(np.float64) % 12 + 1,
        (elapsed + 3) % 7,  # 1970 began on a Thursday
        (days - years.astype("M8[D]")) / DAY + 1,
        since_midnight / 3600,
    )
    parts = np.column_stack(columns)
    parts[np.isnat(dates)] = np.nan
    return parts
