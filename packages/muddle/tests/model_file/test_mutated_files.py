"""A thousand damaged or forged files: each is refused by our own error, or is a model that
answers."""

import copy
import json
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

import muddle
from muddle.errors import ModelFileError
from muddle.model_file.contents import KEY, read_contents

thoroughly = settings(
    max_examples=115,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([-1, 0, 1, 2, 7, 10**6, 2**31, 2**63, 10**30]),
    st.sampled_from([-1.0, 0.0, 0.5, 1e-320, 1e300, 1e308]),
    st.sampled_from(["", "number", "text", "float64", "x0", "\udc80", "cuda:9", "os.system"]),
    st.sampled_from([[], {}, [0], ["a", "a"], [[[]]], {"kind": "plain"}]),
)
SHAPES = (
    lambda array: array[..., None],
    lambda array: array[None],
    lambda array: array.ravel(),
    lambda array: array.T,
    lambda array: array[:0],
    lambda array: array[1:],
    lambda array: array[..., :1],
    lambda array: np.repeat(array, 2, axis=0),
)
NUMBERS = (np.nan, np.inf, -np.inf, 0.0, -1.0, 1e-300, 1e29, 1e300)


@pytest.fixture(scope="module", params=["regressor", "classifier", "ensemble"])
def model(request, tmp_path_factory, table, price):
    """Path, contents and a few rows of a model."""
    rows = table.drop(columns="constant")
    if request.param == "ensemble":
        labels = np.where(price > 1, "dear", "cheap")
        fitted = muddle.EnsMLRClassifier(width=3, n_nets=2, max_iter=2, random_state=0)
        fitted.fit(rows, labels)
    else:
        fitted = request.getfixturevalue(request.param)
    path = fitted.save(tmp_path_factory.mktemp("models") / "model.muddle")
    return path, read_contents(path), table.iloc[:3]


def check(path, rows):
    """Nothing but our own error, or a model that says something of the rows, twice over."""
    for runtime in ("torch", "numpy"):
        try:
            loaded = muddle.load(path, runtime=runtime)
        except ModelFileError:
            return
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            assert len(loaded.predict(rows)) == len(rows)
            if hasattr(loaded, "predict_proba"):
                assert len(loaded.predict_proba(rows)) == len(rows)
            if hasattr(loaded, "predict_interval"):
                assert len(loaded.predict_interval(rows)) == len(rows)
            if runtime == "torch":
                assert len(loaded.preprocessor_.describe()) == loaded.n_features_in_


@thoroughly
@given(data=st.data())
def test_bytes_that_were_changed_cut_or_put_in(model, tmp_path_factory, data):
    path, _, rows = model
    raw = bytearray(path.read_bytes())
    head = 8 + int.from_bytes(raw[:8], "little")
    for _ in range(data.draw(st.integers(1, 4))):
        end = data.draw(st.sampled_from([8, head, len(raw)]))
        place = data.draw(st.integers(0, min(end, len(raw)) - 1))
        change = data.draw(st.sampled_from(["set", "set", "set", "cut", "drop", "insert"]))
        if change == "set":
            raw[place] = data.draw(st.integers(0, 255))
        elif change == "cut":
            raw = raw[: place + 1]
        elif change == "drop":
            del raw[place : place + data.draw(st.integers(1, 16))]
        else:
            raw[place:place] = data.draw(st.binary(min_size=1, max_size=16))
        if not raw:
            break
    changed = path.with_name("changed.muddle")
    changed.write_bytes(raw)
    check(changed, rows)


def spots(value, path=()):
    """Every place in a header."""
    if path:
        yield path
    if isinstance(value, dict):
        for name, entry in value.items():
            yield from spots(entry, (*path, name))
    elif isinstance(value, list):
        for place, entry in enumerate(value[:3]):
            yield from spots(entry, (*path, place))


@thoroughly
@given(data=st.data())
def test_fields_of_the_header_that_were_changed(model, data):
    path, contents, rows = model
    header = copy.deepcopy(contents.header)
    places = [place for place in spots(header) if place[0] != "parameters" or len(place) == 2]
    *parents, last = data.draw(st.sampled_from(places))
    owner = header
    for parent in parents:
        owner = owner[parent]
    change = data.draw(st.sampled_from(["set", "set", "near", "remove", "repeat"]))
    if change == "remove":
        del owner[last]
    elif change == "repeat" and isinstance(owner[last], list):
        owner[last] = owner[last] * 2
    elif change == "near" and isinstance(owner[last], (int, float)):
        owner[last] = owner[last] + data.draw(st.sampled_from([-1, 1, 5]))
    elif change == "near" and isinstance(owner[last], list):
        owner[last] = owner[last][1:]
    else:
        owner[last] = data.draw(VALUES)
    changed = path.with_name("changed.muddle")
    changed.write_bytes(save(contents.arrays, metadata={KEY: json.dumps(header)}))
    check(changed, rows)


@thoroughly
@given(data=st.data())
def test_tensors_of_other_shapes_types_and_values(model, data):
    path, contents, rows = model
    arrays = dict(contents.arrays)
    for _ in range(data.draw(st.integers(1, 3))):
        name = data.draw(st.sampled_from(sorted(arrays)))
        with np.errstate(all="ignore"):
            arrays[name] = change_array(arrays[name], data)
        if data.draw(st.integers(0, 9)) == 0:
            arrays[data.draw(st.sampled_from(sorted(contents.arrays)))] = arrays.pop(name)
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    changed = path.with_name("changed.muddle")
    changed.write_bytes(save(arrays, metadata={KEY: json.dumps(contents.header)}))
    check(changed, rows)


def change_array(array, data):
    change = data.draw(st.sampled_from(["value", "value", "shape", "type"]))
    if change == "type":
        return array.astype(data.draw(st.sampled_from(["f2", "f4", "f8", "i8", "i4", "u1", "?"])))
    if change == "shape":
        return data.draw(st.sampled_from(SHAPES))(array)
    array = array.copy()
    if array.size:
        place = data.draw(st.integers(0, array.size - 1))
        if array.dtype.kind == "f":
            array.flat[place] = data.draw(st.sampled_from(NUMBERS))
        else:
            value = data.draw(st.sampled_from([-(2**63), -1, 0, 5, 2**31, 2**63 - 1]))
            array.flat[place] = np.int64(value).astype(array.dtype)
    return array
