"""MLflow's own loader serves a model file, in a process that has neither torch nor muddle."""

import subprocess
import sys
import textwrap

import numpy as np
import pandas as pd
import pytest

import muddle
import muddle_runtime

mlflow = pytest.importorskip("mlflow", reason="needs mlflow, which brings many packages")
ours = pytest.importorskip("muddle.integrations.mlflow")

pytestmark = pytest.mark.filterwarnings("default")  # of MLflow


@pytest.fixture(scope="module")
def homes():
    rng = np.random.default_rng(0)
    area = np.where(rng.random(80) < 0.1, np.nan, rng.normal(90, 25, 80))
    return pd.DataFrame({"area": area, "kind": rng.choice(["flat", "house", "loft"], 80)})


@pytest.fixture(scope="module")
def regressor(homes):
    price = homes["area"].fillna(90) + 30 * (homes["kind"] == "loft")
    return muddle.MuddleRegressor(preset="fast", random_state=0).fit(homes, price)


@pytest.fixture(scope="module")
def classifier(homes):
    dear = np.where(homes["kind"] == "loft", "dear", "cheap")
    return muddle.MLRClassifier(depth=1, width=32, max_iter=20, random_state=0).fit(homes, dear)


@pytest.fixture(scope="module")
def folder(regressor, homes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("mlflow") / "homes"
    ours.save_model(regressor, folder, input_example=homes[:3])
    return folder


def test_mlflow_answers_as_the_runtime_does(folder, regressor, homes):
    loaded = mlflow.pyfunc.load_model(str(folder))
    own = muddle_runtime.load_model(folder / "data" / "model.muddle")
    np.testing.assert_array_equal(loaded.predict(homes), own.predict(homes))
    np.testing.assert_allclose(loaded.predict(homes), regressor.predict(homes), rtol=1e-5)
    params = {"method": "predict_interval", "coverage": 0.8}
    np.testing.assert_array_equal(
        loaded.predict(homes, params=params), own.predict_interval(homes, coverage=0.8)
    )


def test_probabilities_and_classes(classifier, homes, tmp_path):
    ours.save_model(classifier, tmp_path / "dear", input_example=homes[:3])
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "dear"))
    np.testing.assert_array_equal(loaded.predict(homes), classifier.predict(homes))
    np.testing.assert_allclose(
        loaded.predict(homes, params={"method": "predict_proba"}),
        classifier.predict_proba(homes),
        atol=1e-6,
    )
    with pytest.raises(AttributeError, match="MLRClassifier has no method 'predict_interval'"):
        loaded.predict(homes, params={"method": "predict_interval"})


def test_signature_example_and_requirements_are_stored(folder, homes):
    stored = mlflow.models.Model.load(str(folder))
    columns = {one.name: one.type.name for one in stored.signature.inputs.inputs}
    assert columns == {"area": "double", "kind": "string"}
    assert {one.name for one in stored.signature.params.params} == {"method", "coverage"}
    pd.testing.assert_frame_equal(stored.load_input_example(str(folder)), homes[:3])
    needed = (folder / "requirements.txt").read_text()
    assert f"muddle-runtime=={muddle_runtime.__version__}" in needed
    assert "torch" not in needed
    assert "pickle" not in (folder / "MLmodel").read_text()


def test_a_process_without_torch_and_muddle_predicts(folder):
    script = """
        import sys
        for name in ("torch", "muddle", "sklearn"):
            sys.modules[name] = None  # importing it is an error
        import mlflow, pandas
        loaded = mlflow.pyfunc.load_model(sys.argv[1])
        print(loaded.predict(pandas.DataFrame({"area": [80.0, None], "kind": ["loft", "flat"]})))
    """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.strip("[]\n ").split()) == 2


def test_the_estimator_comes_back(folder, regressor, homes, tmp_path):
    again = ours.load_model(str(folder))
    assert isinstance(again, muddle.MuddleRegressor)
    np.testing.assert_allclose(again.predict(homes), regressor.predict(homes), rtol=1e-5)
    again.save(tmp_path / "again.muddle")
    ours.save_model(tmp_path / "again.muddle", tmp_path / "copy")  # a file does as well
    ours.save_model(again.model_, tmp_path / "value")


def test_a_run_has_the_model(regressor, homes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/runs.db")
    try:
        with mlflow.start_run():
            info = ours.log_model(regressor, name="homes", input_example=homes[:3])
        found = mlflow.pyfunc.load_model(info.model_uri).predict(homes[:4])
        np.testing.assert_allclose(found, regressor.predict(homes[:4]), rtol=1e-5)
    finally:
        mlflow.set_tracking_uri(None)


def test_what_is_no_fitted_model_is_refused_and_leaves_no_folder(tmp_path, homes):
    with pytest.raises(TypeError, match="must be a fitted estimator of muddle, a FittedModel"):
        ours.save_model(muddle.MuddleRegressor(), tmp_path / "new")
    (tmp_path / "other.muddle").write_text("not a model")
    with pytest.raises(muddle_runtime.ModelFileError):
        ours.save_model(tmp_path / "other.muddle", tmp_path / "new")
    assert not (tmp_path / "new").exists()
    foreign = {"python_model": lambda model_input: model_input, "pip_requirements": ["mlflow"]}
    mlflow.pyfunc.save_model(tmp_path / "other", **foreign)
    with pytest.raises(ValueError, match="must lead to a model that muddle stored"):
        ours.load_model(str(tmp_path / "other"))


def test_unknown_methods_are_named(folder, homes):
    loaded = mlflow.pyfunc.load_model(str(folder))
    with pytest.raises(ValueError, match="method must be one of 'predict', 'predict_proba'"):
        loaded.predict(homes, params={"method": "transform"})
