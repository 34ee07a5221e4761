"""What users import: scikit-learn estimators."""
