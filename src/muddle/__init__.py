"""Learn from small tables with MLR nets: wide nets whose output layer is a closed-form ridge."""

from muddle.estimators.single import MLRClassifier, MLRRegressor

__version__ = "0.1.0"
__all__ = ["MLRClassifier", "MLRRegressor", "__version__"]
