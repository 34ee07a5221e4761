"""The tables in results/studies: whole, beside every printed row, and as the records have them."""

from pathlib import Path

import pandas as pd
import pytest
from muddle_bench.run.tables import read_records

from muddle_bench.run.records import Record
from muddle_bench.studies.points import STUDIES
from muddle_bench.studies.published import published_rows
from muddle_bench.studies.reading import read_study
from muddle_bench.studies.tables import make_rows, sort_records

RESULTS = Path(__file__).parents[4] / "results" / "studies"

pytestmark = pytest.mark.skipif(not RESULTS.is_dir(), reason="needs results/, not in a wheel")


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return read_records(RESULTS / "records.csv.gz")


def test_every_printed_row_has_a_measured_partner_with_its_difference():
    measured = {}
    for name in STUDIES:
        table = read_study(RESULTS, name)
        for row in table.itertuples():
            measured[name, row.dataset, row.value] = row
    for key, printed in published_rows().items():
        row = measured[key]
        assert row.n_splits >= 5, key
        assert row.score_published == pytest.approx(printed.score), key
        assert row.difference == pytest.approx(row.score - printed.score, abs=1e-5), key
        assert row.hardware, key


@pytest.mark.parametrize("name", STUDIES)
def test_the_tables_are_those_of_the_records(name, records):
    rows = pd.DataFrame(make_rows(STUDIES[name], sort_records(records), "431fbe0"))
    stored = pd.read_csv(RESULTS / f"{name}.csv", dtype=str, keep_default_na=False)
    pd.testing.assert_frame_equal(rows, stored, check_dtype=False)


def test_depth_is_replicated():
    """The one study whose splits are known."""
    table = read_study(RESULTS, "depth")
    assert table["difference"].abs().mean() < 0.008
    assert (table["difference"].abs() < 2 * table["score_se"] + 0.005).mean() > 0.9
