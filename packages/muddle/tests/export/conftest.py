"""Exported models, run by onnxruntime."""

import json
from dataclasses import replace

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from onnx import TensorProto, helper

from muddle import MLRRegressor, MuddleRegressor, TablePreprocessor
from muddle.estimators import pool, student
from muddle.export.onnx import IR_VERSION, ML_DOMAIN, ML_OPSET, OPSET, export_model
from muddle.export.onnx_tables import Graph
from muddle_runtime.file import read_model

SMALL = {"width": 8, "max_iter": 4, "depth": 1, "random_state": 0, "device": "cpu"}
N_ROWS, N_NEW = 120, 40


@pytest.fixture(scope="session")
def fitted_model(tmp_path_factory):
    """The FittedModel of a fitted estimator."""
    path = tmp_path_factory.mktemp("models") / "model.muddle"
    return lambda estimator: read_model(estimator.save(path))


@pytest.fixture(scope="module", autouse=True)  # not of the session: other folders follow
def small_pool():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "BASE", replace(pool.BASE, width=12, max_iter=10))
        patch.setattr(student, "CONFIG", replace(student.CONFIG, max_iter=20))
        patch.setattr(student, "N_MADE", 2000)
        patch.setattr(student, "N_MADE_FOLD", 1000)
        yield


@pytest.fixture(scope="session")
def fit(fitted_model):
    """The model of a tiny net, with options of its preprocessor."""

    def fit_net(table, target, **options):
        preprocessor = TablePreprocessor(**options)
        return fitted_model(MLRRegressor(preprocessor=preprocessor, **SMALL).fit(table, target))

    return fit_net


@pytest.fixture(scope="session")
def table():
    """Rows with a column of every kind, most with gaps."""
    rng = np.random.default_rng(8)
    table = pd.DataFrame(
        {
            "size": rng.normal(size=N_ROWS),
            "price": rng.lognormal(3, 2, N_ROWS),
            "rooms": rng.integers(1, 5, N_ROWS).astype(float),
            "written": rng.normal(size=N_ROWS).round(2).astype(str),
            "sold": pd.to_datetime(rng.integers(1_424_990_000, 1_812_410_000, N_ROWS), unit="s"),
            "born": pd.date_range("1896-01-01", periods=N_ROWS, freq="300D").strftime("%Y-%m-%d"),
            "took": pd.to_timedelta(rng.integers(0, 9**6, N_ROWS), unit="s"),
            "kind": rng.choice(["flat", "house", "loft"], N_ROWS),
            "garden": rng.random(N_ROWS) > 0.4,
            "street": rng.choice([f"street {i}" for i in range(25)], N_ROWS),
        }
    )
    for name in ("size", "rooms", "sold", "kind", "street"):
        table.loc[rng.random(N_ROWS) < 0.1, name] = None
    return table


@pytest.fixture(scope="session")
def target(table):
    noise = np.random.default_rng(9).normal(size=N_ROWS)
    return table["size"].fillna(0) + 2.0 * table["garden"] + noise / 10


@pytest.fixture
def new_rows(table):
    """Rows with new levels, with gaps where there were none, and with values far off."""
    rows = table.head(N_NEW).copy()
    rows.loc[0, ["size", "price", "rooms"]] = np.nan
    rows.loc[1, ["size", "price"]] = [1e6, -1e9]
    rows.loc[2, ["kind", "street"]] = ["castle", "new street"]
    rows.loc[3, ["kind", "street"]] = None
    rows.loc[4, ["kind", "street"]] = ["  ", "nan"]
    rows.loc[5, ["written", "born"]] = None
    rows.loc[6, "sold"] = pd.Timestamp("1896-02-29 23:59:59.999999")
    rows.loc[7, "sold"] = pd.Timestamp("2100-03-01")
    rows.loc[8, "took"] = pd.NaT
    rows.loc[9, "size"] = -1e5
    return rows


@pytest.fixture(scope="session")
def array():
    """Fifty rows of four numbers, and a target."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 4))
    return X, X[:, 0] + np.sin(2 * X[:, 1]) + 0.1 * rng.normal(size=50)


@pytest.fixture(scope="session")
def net(fit, array):
    return fit(*array)


@pytest.fixture(scope="module")
def flagship(fitted_model, array):
    estimator = MuddleRegressor(preset="fast", random_state=0, device="cpu")
    return fitted_model(estimator.fit(*array))


@pytest.fixture
def open_graph(tmp_path):
    """The session of an exported model."""

    def export_and_open(model, **options):
        path = export_model(model, tmp_path / "model.onnx", **options)
        return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    return export_and_open


@pytest.fixture(scope="session")
def read_schema():
    return lambda session: json.loads(session.get_modelmeta().custom_metadata_map["muddle"])


@pytest.fixture
def run(open_graph, read_schema):
    """Outputs of a model's graph for a table, by name."""

    def export_and_run(model, table, **options):
        session = open_graph(model, **options)
        names = [output.name for output in session.get_outputs()]
        feed = make_feed(read_schema(session), table)
        return dict(zip(names, session.run(None, feed), strict=True))

    return export_and_run


@pytest.fixture
def assert_same(run):
    """The graph and the model agree to 1e-4 of the target's deviation, or in probability."""

    def compare(model, table):
        found = run(model, table)
        if model.task == "classification":
            wanted = model.predict_proba(table)
            np.testing.assert_allclose(found["probabilities"], wanted, atol=1e-4, rtol=0)
            clear = np.diff(np.sort(wanted, axis=1)[:, -2:])[:, 0] > 1e-6
            assert (found["label"] == model.predict(table))[clear].all()
        else:
            unit = model.target.scale.deviation.max()
            wanted = model.predict(table)
            np.testing.assert_allclose(found["prediction"], wanted, atol=1e-4 * unit, rtol=1e-4)
        return found

    return compare


@pytest.fixture(scope="session")
def evaluate():
    """The result of a part of a graph, for an array of numbers."""

    def build_and_run(write, values):
        graph = Graph(["x", "y"])
        result = write(graph.add_input("x", TensorProto.DOUBLE, ("N", values.shape[1])))
        graph.add_output("y", result, TensorProto.DOUBLE, ("N", "M"))
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(ML_DOMAIN, ML_OPSET)]
        model = helper.make_model(graph.build("part"), opset_imports=opsets, ir_version=IR_VERSION)
        content = model.SerializeToString()
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        return session.run(None, {"x": values})[0]

    return build_and_run


def make_feed(schema, table):
    """A table as inputs, by nothing but the schema of the graph."""
    columns = schema["columns"]
    if "position" in columns[0]:
        return {"X": np.asarray(table, dtype=np.float64)}
    frame = table if isinstance(table, pd.DataFrame) else pd.DataFrame(table).add_prefix("x")
    return {column["input"]: to_input(frame[column["column"]], column) for column in columns}


def to_input(values, column):
    if column["type"] == "string":
        texts = ["" if pd.isna(value) else str(value) for value in values]
        return np.array(texts, dtype=object)[:, None]
    if column["value"].startswith("seconds since"):
        dates = pd.to_datetime(values, utc=True, format="ISO8601").dt.tz_localize(None)
        values = dates.astype("M8[us]") - np.datetime64(0, "us")
    if values.dtype.kind == "m":
        values = values / np.timedelta64(1, "s")
    numbers = [np.nan if pd.isna(value) else float(value) for value in values]
    return np.array(numbers, dtype=np.float64)[:, None]
