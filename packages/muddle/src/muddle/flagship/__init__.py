"""The flagship estimators: a pool of cross-fitted nets, combined by what they say out of fold."""
