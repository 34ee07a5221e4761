"""One ISO 8601 date from its text, without pandas: so a few texts are read soonest."""

import datetime
import re

import numpy as np

# ASCII: the digits of other scripts are no dates.
PARTS = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})"
    r"(?:[T ](\d{2}):(\d{2})(?::(\d{2})(?:\.(\d+))?)?(?: ?(?:(Z)|([+-])(\d{2}):?(\d{2})))?)?",
    re.ASCII,
)


def parse_iso_date(text: str) -> np.datetime64 | None:
    """datetime64[us] in UTC; a fraction of a microsecond is cut off. None if it is no date."""
    found = PARTS.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction, _, sign, hours, minutes = found.groups("0")
    if int(hours) > 23 or int(minutes) > 59:
        return None
    try:
        date = datetime.datetime(
            *(int(year), int(month), int(day), int(hour), int(minute), int(second)),
            int(f"{fraction:0<6}"[:6]),
        )
    except ValueError:
        return None
    east = np.timedelta64(60 * int(hours) + int(minutes), "m")
    return np.datetime64(date, "us") + (east if sign == "-" else -east)
