"""On which splits the published numbers were made."""

import numpy as np
import pytest
from sklearn.model_selection import train_test_split

from muddle_bench.data import load
from muddle_bench.ranking import published_scores
from muddle_bench.ranking.published import find_note

PRINTED = published_scores()
BASELINES = PRINTED[(PRINTED["method"] == "baseline") & (PRINTED["metric"] != "auc")]


def score_baseline(y, split, task):
    """R² of the training mean, or accuracy of the most frequent training class."""
    train, test = train_test_split(np.arange(len(y)), train_size=0.8, random_state=split)
    if task == "classification":
        values, counts = np.unique(y[train], return_counts=True)
        return np.mean(y[test] == values[counts.argmax()])
    errors = np.sum((y[test] - y[train].mean()) ** 2)
    return 1 - errors / np.sum((y[test] - y[test].mean()) ** 2)


@pytest.mark.slow
@pytest.mark.parametrize("row", list(BASELINES.itertuples()), ids=lambda row: row.dataset)
def test_published_baselines_were_made_on_the_splits_of_seeds_0_to_9(row, data_folder):
    """To the last printed digit, mean and standard deviation: chance would not do that."""
    if find_note(row.metric, row.printed, row.dataset):
        pytest.skip("labels were drawn at random")
    y = load(row.dataset, "published", data_home=data_folder).y
    scores = [score_baseline(y, split, row.task) for split in range(10)]
    assert np.mean(scores) == pytest.approx(row.mean, abs=0.00051)
    assert np.std(scores, ddof=1) == pytest.approx(row.std, abs=0.00051)
