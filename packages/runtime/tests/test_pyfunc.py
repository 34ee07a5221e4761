"""The class that MLflow loads, without MLflow."""

import numpy as np
import pytest

from muddle_runtime.pyfunc import _load_pyfunc


@pytest.mark.filterwarnings("ignore:X holds")
def test_it_answers_as_the_model_and_its_methods(regressor):
    served, rows = _load_pyfunc(str(regressor.path)), regressor.rows
    np.testing.assert_array_equal(served.predict(rows), regressor.model.predict(rows))
    found = served.predict(rows, {"method": "predict_interval", "coverage": 0.5})
    np.testing.assert_array_equal(found, regressor.model.predict_interval(rows, coverage=0.5))
    nine = served.predict(rows, {"method": "predict_interval"})
    np.testing.assert_array_equal(nine, regressor.model.predict_interval(rows, coverage=0.9))


def test_an_unknown_method_is_an_error(regressor):
    served = _load_pyfunc(str(regressor.path))
    with pytest.raises(ValueError, match=r"method must be one of .*, got method='predict_probs'"):
        served.predict(regressor.rows, {"method": "predict_probs"})
