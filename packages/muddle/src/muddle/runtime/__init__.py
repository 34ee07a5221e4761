"""Prediction with numpy alone: no torch, pandas, scikit-learn, scipy or narwhals is imported."""
