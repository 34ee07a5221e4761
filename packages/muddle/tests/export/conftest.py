"""Exported models, asked by onnxruntime."""

import json
from dataclasses import replace

import numpy as np
import onnxruntime
import pandas as pd
import pytest

from muddle.flagship import pool


@pytest.fixture
def small_pool(monkeypatch):
    monkeypatch.setattr(pool, "BASE", replace(pool.BASE, width=16, max_iter=20))


@pytest.fixture
def ask(tmp_path):
    """What the graph of an estimator says of a table, by the names of its outputs."""

    def export_and_run(estimator, table, **options):
        session = open_session(estimator.to_onnx(tmp_path / "model.onnx", **options))
        return run(session, table)

    return export_and_run


@pytest.fixture
def open_graph(tmp_path):
    """The session of an exported estimator."""
    return lambda estimator, **options: open_session(
        estimator.to_onnx(tmp_path / "model.onnx", **options)
    )


@pytest.fixture
def assert_same(ask):
    """The graph and the estimator answer alike, to 1e-4: of the target's deviation and the size of
    the answer, or of a probability."""

    def compare(estimator, table, rows=None):
        said = ask(estimator, table)
        if hasattr(estimator, "classes_"):
            wanted = estimator.predict_proba(table)
            np.testing.assert_allclose(said["probabilities"], wanted, atol=1e-4, rtol=0)
            clear = np.diff(np.sort(wanted, axis=1)[:, -2:])[:, 0] > 1e-6
            assert (said["label"] == estimator.predict(table))[clear].all()
        else:
            wanted = estimator.predict(table)
            unit = estimator.target_scale_.deviation.max()
            np.testing.assert_allclose(said["prediction"], wanted, atol=1e-4 * unit, rtol=1e-4)
        return said

    return compare


def open_session(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def run(session, table):
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, make_feed(session, table)), strict=True))


def make_feed(session, table):
    """A table as inputs, by nothing but the schema in the metadata of the model."""
    columns = json.loads(session.get_modelmeta().custom_metadata_map["muddle"])["columns"]
    if columns[0]["input"] == "X" and "position" in columns[0]:
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
