"""ISO dates read one by one are those that pandas reads."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muddle.tables.columns import ISO_DATE, _parse_dates
from muddle.tables.iso_dates import parse_iso_date


@st.composite
def texts(draw):
    """Texts that look like dates: some have a month 13 or an hour 24."""

    def number(most):
        return f"{draw(st.integers(0, most)):02}"

    # pandas refuses fractions of a microsecond in years that nanoseconds cannot count to.
    text = f"{draw(st.integers(1700, 2200))}-{number(13)}-{number(32)}"
    if draw(st.booleans()):
        text += f"{draw(st.sampled_from('T '))}{number(24)}:{number(60)}"
        if draw(st.booleans()):
            text += f":{number(60)}"
            if draw(st.booleans()):
                text += "." + draw(st.text("0123456789", min_size=1, max_size=11))
        zone = draw(st.sampled_from(["", "Z", " Z", "+", "-", " +", " -"]))
        if zone.strip() in ("+", "-"):
            zone += number(25) + draw(st.sampled_from(["", ":"])) + number(60)
        text += zone
    return text


@settings(max_examples=400, deadline=None, derandomize=True)
@given(texts())
def test_dates_are_read_as_pandas_reads_them(text):
    assert ISO_DATE.fullmatch(text)
    expected = _parse_dates([text])
    found = parse_iso_date(text)
    assert (found is None) == (expected is None)
    assert expected is None or found == expected[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2021-05-06", "2021-05-06T00:00"),
        ("2021-05-06 07:08", "2021-05-06T07:08"),
        ("2021-05-06T07:08:09.1234567Z", "2021-05-06T07:08:09.123456"),
        ("1960-05-06T07:08+02:30", "1960-05-06T04:38"),
        ("2021-01-01T00:30 +0100", "2020-12-31T23:30"),
        ("9999-12-31T23:00-0200", "+10000-01-01T01:00"),
    ],
)
def test_dates_are_in_utc_and_to_the_microsecond(text, expected):
    assert parse_iso_date(text) == np.datetime64(expected, "us")


@pytest.mark.parametrize("text", ["", "2021", "2021-2-3", "٢٠٢١-01-01", "2021-01-01T10", "x"])
def test_what_is_no_iso_date_is_none(text):
    assert parse_iso_date(text) is None
