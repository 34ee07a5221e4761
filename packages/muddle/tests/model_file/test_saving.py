import datetime
import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge

import muddle
from muddle.errors import ModelFileError
from muddle.model_file import contents
from muddle.model_file.contents import read_contents
from muddle.model_file.saving import save_model
from muddle_runtime import whole_file

SMALL = {"width": 4, "max_iter": 2, "random_state": 0}


@pytest.fixture
def fitted(numbers):
    return muddle.MLRRegressor(**SMALL).fit(*numbers)


def test_the_path_is_given_back(fitted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert fitted.save("model.muddle") == Path("model.muddle")
    assert muddle.load("model.muddle").width == 4


def test_an_unfitted_estimator_has_nothing_to_save(tmp_path):
    with pytest.raises(NotFittedError):
        muddle.MuddleRegressor().save(tmp_path / "model.muddle")


def test_only_estimators_of_ours_are_saved(fitted, numbers, tmp_path):
    class Mine(muddle.MLRRegressor):
        pass

    for other in (Ridge().fit(*numbers), Mine(**SMALL).fit(*numbers)):
        with pytest.raises(TypeError, match=r"an estimator of muddle .* got a (Ridge|Mine)"):
            save_model(other, tmp_path / "model.muddle")


def test_a_folder_that_is_missing_or_no_folder_is_said_before_any_work(fitted, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"folder of model\.muddle must exist, .* Create"):
        fitted.save(tmp_path / "no" / "model.muddle")
    with pytest.raises(IsADirectoryError, match="must name a file"):
        fitted.save(tmp_path)
    with pytest.raises(ValueError, match=r"dtype must be one of .* Did you mean 'float16'\?"):
        fitted.save(tmp_path / "model.muddle", dtype="float61")


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(fitted, tmp_path, monkeypatch):
    path = fitted.save(tmp_path / "model.muddle")
    before = path.read_bytes()

    def fail(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(whole_file.os, "fsync", fail)
    with pytest.raises(OSError, match="no space left"):
        fitted.save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["model.muddle"]


def test_an_old_file_is_replaced_whole(fitted, numbers, tmp_path):
    path = tmp_path / "model.muddle"
    path.write_bytes(bytes(10**6))
    fitted.save(path)
    X, _ = numbers
    np.testing.assert_array_equal(muddle.load(path).predict(X), fitted.predict(X))
    assert os.listdir(tmp_path) == ["model.muddle"]


@pytest.mark.parametrize(
    "labels",
    [
        np.array([datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)], dtype=object),
        np.array([(1, 2), (3, 4), None], dtype=object)[:2],
        np.array(["2020", "2021"], dtype="M8[Y]"),
        np.array([b"no", b"yes"]),
    ],
    ids=["dates", "tuples", "datetime64", "bytes"],
)
def test_labels_that_json_cannot_hold_are_refused_with_a_way_out(numbers, tmp_path, labels):
    X, y = numbers
    model = muddle.MLRClassifier(**SMALL).fit(X, y > 0)
    model.classes_ = labels
    with pytest.raises(TypeError, match="classes must be text, whole numbers, numbers or booleans"):
        model.save(tmp_path / "model.muddle")
    assert os.listdir(tmp_path) == []


def test_weights_too_large_for_half_precision_are_refused(fitted, tmp_path):
    fitted.nets_.weights[0][:] = 1e6
    with pytest.raises(ValueError, match=r"at most 65504 .* Use dtype='float32'"):
        fitted.save(tmp_path / "model.muddle", dtype="float16")


def test_a_header_too_long_to_be_read_again_is_not_written(fitted, tmp_path, monkeypatch):
    monkeypatch.setattr(contents, "LONGEST_HEADER", 1000)
    with pytest.raises(ModelFileError, match=r"at most 1,000 characters, .*drop=\["):
        fitted.save(tmp_path / "model.muddle")
    assert os.listdir(tmp_path) == []


def test_load_names_what_it_does_not_know(fitted, tmp_path):
    path = fitted.save(tmp_path / "model.muddle")
    with pytest.raises(ValueError, match=r"runtime must be one of .* Did you mean 'numpy'\?"):
        muddle.load(path, runtime="numpi")
    with pytest.raises(ValueError, match="device goes with runtime='torch'"):
        muddle.load(path, runtime="numpy", device="cpu")


def test_nothing_in_the_file_has_as_many_entries_as_there_are_rows(regressor, table, tmp_path):
    n_rows = len(table)
    arrays = read_contents(regressor.save(tmp_path / "model.muddle")).arrays
    long = {name for name, array in arrays.items() if n_rows in array.shape}
    assert long == {"conformal.0.scores"}  # sorted errors, of which intervals are made
    ensemble = muddle.BagMLRClassifier(n_nets=2, **SMALL).fit(
        table[["size", "age"]], table["kind"].isna()
    )
    arrays = read_contents(ensemble.save(tmp_path / "model.muddle")).arrays
    assert not any(n_rows in array.shape for array in arrays.values())


def test_a_pipe_or_device_is_not_replaced_by_a_file(fitted, tmp_path):
    place = tmp_path / "pipe"
    os.mkfifo(place)
    with pytest.raises(FileExistsError, match="must name an ordinary file or none"):
        fitted.save(place)
    assert place.is_fifo()
