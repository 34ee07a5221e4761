"""Splits of the benchmark: the authors' rows."""

import hashlib
import struct

import numpy as np
from sklearn.model_selection import train_test_split

from muddle_bench.run.splits import hash_rows, split_rows


def test_a_split_is_the_authors_call_with_its_number_as_seed():
    X = np.arange(103)
    train, test = train_test_split(X, train_size=0.8, random_state=7)
    split = split_rows(103, 7)
    np.testing.assert_array_equal(split.train, train)
    np.testing.assert_array_equal(split.test, test)
    assert (len(train), len(test)) == (82, 21)


def test_training_and_test_rows_are_all_rows_once():
    split = split_rows(60, 0)
    assert sorted([*split.train, *split.test]) == list(range(60))


def test_the_hash_stands_for_the_rows_in_their_order():
    rows = np.array([3, 1, 2])
    expected = hashlib.sha256(struct.pack("<3q", 3, 1, 2)).hexdigest()[:12]
    assert hash_rows(rows) == hash_rows(rows.astype(np.int32)) == expected
    assert hash_rows(rows) != hash_rows(rows[::-1])
    assert split_rows(60, 0).rows_hash == split_rows(60, 0).rows_hash
    assert split_rows(60, 0).rows_hash != split_rows(60, 1).rows_hash
