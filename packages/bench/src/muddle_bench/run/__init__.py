"""The benchmark: every method on every data set, on the same splits."""
