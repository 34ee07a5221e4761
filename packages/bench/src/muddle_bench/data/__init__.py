"""The data sets of the paper, and tables of your own, with their origin."""

from muddle_bench.data.catalogue import Entry
from muddle_bench.data.files import fetch
from muddle_bench.data.loading import Dataset, list_datasets, load, load_csv

__all__ = ["Dataset", "Entry", "fetch", "list_datasets", "load", "load_csv"]
