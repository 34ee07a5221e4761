"""The data sets of the paper, and tables of your own, with their origin."""

from muddle.datasets.catalogue import Entry
from muddle.datasets.files import fetch
from muddle.datasets.loading import Dataset, list_datasets, load, load_csv

__all__ = ["Dataset", "Entry", "fetch", "list_datasets", "load", "load_csv"]
