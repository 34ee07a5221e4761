"""The data sets of the paper, and tables of your own, with their origin."""

from muddle_bench.data.catalogue import Entry, part_of
from muddle_bench.data.datasets import Dataset, list_datasets, load_dataset, load_table
from muddle_bench.data.download import fetch

__all__ = ["Dataset", "Entry", "fetch", "list_datasets", "load_dataset", "load_table", "part_of"]
