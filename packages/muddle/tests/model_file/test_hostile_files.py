"""Files that someone damaged, forged or took for a model: what is said of each."""

import copy
import io
import json
import os
import pickle
import resource
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from safetensors.numpy import save

import muddle
from muddle.errors import ModelFileError
from muddle.model_file.contents import FORMAT, KEY, read_contents, write_contents
from muddle.model_file.describing import describe_model


@pytest.fixture(scope="module")
def fitted(table, price):
    model = muddle.BagMLRClassifier(width=4, n_nets=2, max_iter=2, random_state=0)
    return model.fit(table.drop(columns="constant"), np.where(price > 1, "dear", "cheap"))


@pytest.fixture
def path(fitted, tmp_path):
    return fitted.save(tmp_path / "model.muddle")


def forge(path, change):
    """Write the file again after a change of its header or arrays."""
    contents = read_contents(path)
    header, arrays = copy.deepcopy(contents.header), dict(contents.arrays)
    change(header, arrays)
    path.write_bytes(save(arrays, metadata={KEY: json.dumps(header)}))
    return path


def raw_file(header, data=b""):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def test_a_file_that_is_not_there_and_a_folder_are_errors_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no\.muddle"):
        muddle.load(tmp_path / "no.muddle")
    with pytest.raises(IsADirectoryError):
        muddle.load(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_must_not_be_read_is_an_error_of_the_system(path):
    path.chmod(0)
    with pytest.raises(PermissionError):
        muddle.load(path)


def test_a_device_is_not_read_for_ever():
    with pytest.raises(ModelFileError, match="must be an ordinary file"):
        muddle.load("/dev/zero")


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "an empty file"),
        (b"price,size\n1,2\n", "another kind of file, or a part of one"),
        (pickle.dumps({"a": 1}), "looks like a pickle, which is never opened"),
        (b"\x1f\x8b" + bytes(20), "a gzip file"),
    ],
    ids=["empty", "csv", "pickle", "gzip"],
)
def test_other_kinds_of_files_are_named(content, what, tmp_path):
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=f"other must be a whole file .* {what}"):
        muddle.load(path)


def test_a_zip_bomb_is_not_unpacked(tmp_path):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("weights", bytes(10**7))
    path = tmp_path / "bomb"
    path.write_bytes(packed.getvalue())
    with pytest.raises(ModelFileError, match="a zip archive"):
        muddle.load(path)


def test_a_pickle_of_a_model_is_not_run(tmp_path):
    class Run:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "was run"),)

    path = tmp_path / "model.muddle"
    path.write_bytes(pickle.dumps(Run()))
    with pytest.raises(ModelFileError):
        muddle.load(path)
    assert not (tmp_path / "was run").exists()


def test_a_safetensors_file_of_something_else(tmp_path):
    path = tmp_path / "other.safetensors"
    path.write_bytes(save({"weight": np.zeros(3)}))
    with pytest.raises(ModelFileError, match="no metadata entry 'muddle', so it is of"):
        muddle.load(path)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
def test_a_part_of_a_file(path, share):
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(ModelFileError, match=r"must be a whole file .* Save or copy it again\."):
        muddle.load(path)


def test_a_newer_format_asks_for_a_newer_muddle(path):
    forge(path, lambda header, arrays: header.update(format=FORMAT + 1, new_field=[]))
    with pytest.raises(ModelFileError, match=r"has format 2, .* formats up to 1\. Upgrade muddle"):
        muddle.load(path)


@pytest.mark.parametrize("value", [0, -1, 1.0, "1", None, True, [1]])
def test_a_format_that_is_no_number(path, value):
    forge(path, lambda header, arrays: header.update(format=value))
    with pytest.raises(ModelFileError, match="its format must be a whole number"):
        muddle.load(path)


def set_at(*place, value):
    def change(header, arrays):
        owner = header
        for name in place[:-1]:
            owner = owner[name]
        owner[place[-1]] = value

    return change


def put(name, make):
    def change(header, arrays):
        arrays[name] = np.ascontiguousarray(make(arrays[name]))

    return change


FORGERIES = {
    "an estimator that is none": (set_at("estimator", value="os.system"), "estimator must be one"),
    "another task": (set_at("task", value="regression"), "header.task must be one of classific"),
    "a parameter too many": (set_at("parameters", "x", value=1), "parameters must be an object of"),
    "a device": (set_at("parameters", "device", value="meta"), "device must be auto, cpu, cuda or"),
    "top of fewer": (
        lambda header, arrays: (
            header["answer"].update(select="top", top_k=9),
            header["parameters"].update(select="top", top_k=9),
        ),
        "top_k must be at most the number of nets, 2, got 9",
    ),
    "a column twice": (
        lambda header, arrays: header["columns"]["names"].append("size"),
        "columns.names must be a list without repetition",
    ),
    "levels twice": (
        lambda header, arrays: header["preprocessor"]["one_hot"][0]["levels"]["known"].append(
            "flat"
        ),
        "levels.known must be a list without repetition",
    ),
    "another column": (
        set_at("preprocessor", "one_hot", 0, "column", value="city"),
        "preprocessor.one_hot must have the columns decided on",
    ),
    "a code beyond the levels": (
        set_at("preprocessor", "one_hot", 0, "levels", "missing", value=8),
        "missing must be a code up to 2, got 8",
    ),
    "views that are not there": (
        set_at("parts", 0, "views", value=[0, 1]),
        "views must be below 1",
    ),
    "more nets": (set_at("parts", 0, "n_nets", value=3), "views must be 3 places"),
    "a depth": (set_at("parts", 0, "depth", value=10**9), "'parts.0.weights.2' must be there"),
    "classes of another type": (set_at("target", "dtype", value="int8"), "must be a whole number"),
    "one class": (set_at("target", "classes", value=["a"]), "classes must be a list of 2 or more"),
    "nan": (set_at("training", "seconds", value=float("nan")), "NaN is no number of JSON"),
    "infinity": (set_at("training", "seconds", value=float("inf")), "is no number of JSON"),
    "a summary of another table": (
        set_at("training", "table", "target", value={"counts": [1, 2, 3]}),
        "training.table must be a summary of the table: target must have 2 counts",
    ),
    "notes that are none": (set_at("training", "origin", value=1), "origin must be an object"),
    "notes of another kind": (
        set_at("training", "origin", value={"target": ["price"]}),
        "origin.target must be text",
    ),
    "text with half a character": (
        set_at("columns", "names", 0, value="\udc80"),
        "must be text that UTF-8 can hold",
    ),
    "weights of another shape": (
        put("parts.0.weights.1", lambda array: array[:, :3]),
        r"parts.0.weights.1 must be of shape \(2, 4, any\), got .*3, 4",
    ),
    "weights that are nan": (
        put("parts.0.weights.0", lambda array: array * np.nan),
        "parts.0.weights.0 must be without NaN",
    ),
    "weights that are infinite": (
        put("parts.0.biases.0", lambda array: array + np.inf),
        "parts.0.biases.0 must be finite",
    ),
    "whole weights": (
        put("parts.0.head", lambda array: array.astype(np.int64)),
        "parts.0.head must be of type float64 or float32, got int64",
    ),
    "bytes": (put("temperature", lambda array: array.astype("u1")), "types F16, F32, F64, I64"),
    "a temperature of 0": (put("temperature", lambda array: 0 * array), "must be above 0"),
    "a place beyond the columns": (
        put("preprocessor.kept", lambda array: array + 1),
        "preprocessor.kept must be within 0 and 9, got 10",
    ),
    "places in disorder": (
        put("preprocessor.kept", lambda array: array[::-1]),
        "preprocessor.kept must be ascending",
    ),
    "labels that are one as float16": (
        lambda header, arrays: header["target"].update(classes=[1.0, 1.00001], dtype="float16"),
        "target.classes must be distinct as float16 too",
    ),
    "labels that are one in an array": (
        set_at("target", "classes", value=["a", "a\0"]),
        "target.classes must be distinct as text too",
    ),
    "one more column of a frame": (
        lambda header, arrays: (
            header["training"]["frames"]["nets"]["dtypes"].update(validation_score="float64"),
            arrays.update({"training.nets.validation_score": np.zeros(2)}),
        ),
        "columns of training.nets must be net, depth, .* got 'validation_score'",
    ),
    "a view twice": (
        lambda header, arrays: header["views"].append(header["views"][0]),
        "views must be distinct",
    ),
    "a tensor too few": (
        lambda header, arrays: arrays.pop("temperature"),
        "the tensor 'temperature' must be there",
    ),
    "a tensor too many": (
        lambda header, arrays: arrays.update(rows=np.zeros(9)),
        "nothing in the header asks for the tensor 'rows'",
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_file_is_refused_by_name(path, name):
    change, message = FORGERIES[name]
    forge(path, change)
    with pytest.raises(ModelFileError, match=f"model.muddle must be a file as .*{message}"):
        muddle.load(path)


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelFileError, match="must be an ordinary file"):
        muddle.load(tmp_path / "pipe")


def test_texts_that_would_be_written_many_times_over_are_refused(path):
    """A megabyte in the file would be gigabytes in memory."""

    def lengthen(header, arrays):
        header["target"]["classes"] = [*map(str, range(999)), "x" * 100_000]
        arrays["parts.0.head"] = np.zeros((2, 4, 1000))

    with pytest.raises(ModelFileError, match="classes must be short enough for 33,554,432 letter"):
        muddle.load(forge(path, lengthen))


def test_many_levels_of_a_column_with_a_long_name_are_refused(path):
    def lengthen(header, arrays):
        name, stored = "x" * 100_000, header["preprocessor"]
        (place,) = (i for i, one in enumerate(stored["one_hot"]) if one["column"] == "kind")
        stored["one_hot"][place]["column"] = name
        stored["one_hot"][place]["levels"]["known"] = [str(i) for i in range(1000)]
        stored["decisions"][2]["name"] = header["columns"]["names"][2] = name

    with pytest.raises(ModelFileError, match="names of columns in the names of features must be"):
        muddle.load(forge(path, lengthen))


def cut_cosines(view, arrays):
    """As many features seen, of fewer cosines."""
    for name in ("frequencies", "phases", "mixtures"):
        arrays[f"views.{view}.{name}"] = np.ascontiguousarray(arrays[f"views.{view}.{name}"][:, 1:])


def find_waves(header):
    """The views of each part that sees waves."""
    parts = (part["views"] for part in header["parts"])
    return [own for own in parts if header["views"][own[0]]["kind"] == "waves"]


def see_other_waves(header, arrays):
    cut_cosines(find_waves(header)[0][0], arrays)


def see_bins_of_that_width(header, arrays):
    view = find_waves(header)[0][0]
    frequencies, _, mixtures = (
        arrays.pop(f"views.{view}.{name}") for name in ("frequencies", "phases", "mixtures")
    )
    n_numbers, n_curves = len(frequencies), mixtures.shape[2]
    stored = {"kind": "bins", "n_numbers": n_numbers}
    header["views"][view] = stored | {"n_features": header["views"][view]["n_features"]}
    for name in ("starts", "widths", "least", "most"):
        arrays[f"views.{view}.{name}"] = np.ones((n_numbers, n_curves + 1))
    arrays[f"views.{view}.kept"] = np.arange(n_numbers * (n_curves + 1))


@pytest.mark.parametrize(
    ("change", "must"),
    [(see_other_waves, "of one shape"), (see_bins_of_that_width, "of one kind")],
)
def test_nets_of_a_part_must_see_alike(regressor, tmp_path, change, must):
    path = regressor.save(tmp_path / "model.muddle")
    with pytest.raises(ModelFileError, match=rf"the views of parts.\d must be {must}"):
        muddle.load(forge(path, change))


def spread_of(**changes):
    def change(header, arrays):
        header["spread"]["spreads"][0].update(changes)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (spread_of(mean=1e-300, ceiling=1e300), "mean must be a number from 1e-100 to 1e.100"),
        (spread_of(floor=1e-320), "floor must be a number from 1e-100 to 1e.100"),
        (put("views.0.mixtures", lambda array: array * 1e300), "mixtures must be within"),
    ],
)
def test_numbers_with_which_intervals_would_not_be_finite(regressor, tmp_path, change, message):
    path = regressor.save(tmp_path / "model.muddle")
    assert find_waves(read_contents(path).header)[0][0] == 0
    with pytest.raises(ModelFileError, match=message):
        muddle.load(forge(path, change))


def test_errors_that_are_not_sorted_would_give_wrong_intervals(regressor, tmp_path):
    path = regressor.save(tmp_path / "model.muddle")
    with pytest.raises(ModelFileError, match=r"conformal\.0\.scores must be ascending"):
        muddle.load(forge(path, put("conformal.0.scores", lambda array: array[::-1])))


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_nets_that_overflow_give_no_numbers_but_no_error(regressor, table, tmp_path):
    path = regressor.save(tmp_path / "model.muddle")

    def change(header, arrays):
        for name in arrays:
            if name.startswith("parts.") and ".weights." in name:
                arrays[name] = np.copysign(np.float32(1e29), arrays[name])

    model = muddle.load(forge(path, change), runtime="numpy")
    assert np.isnan(model.predict(table)).all()
    assert np.isnan(model.predict_interval(table)).all()


def test_parts_need_not_see_alike(regressor, table, tmp_path):
    path = regressor.save(tmp_path / "model.muddle")

    def change(header, arrays):
        for view in find_waves(header)[0]:
            cut_cosines(view, arrays)

    assert len(find_waves(read_contents(path).header)) > 1
    forge(path, change)
    answers = [muddle.load(path, runtime=runtime).predict(table) for runtime in ("torch", "numpy")]
    np.testing.assert_allclose(*answers, rtol=1e-4)


def test_a_header_nested_without_end(path):
    text = "[" * 100_000 + "]" * 100_000
    path.write_bytes(save({"a": np.zeros(1)}, metadata={KEY: text}))
    with pytest.raises(ModelFileError, match="nested too deeply"):
        muddle.load(path)


def test_a_number_of_a_million_digits(path):
    path.write_bytes(save({"a": np.zeros(1)}, metadata={KEY: "1" * 1_000_000}))
    with pytest.raises(ModelFileError, match="its header is no JSON"):
        muddle.load(path)


def test_a_header_that_is_no_object(path):
    for text in ("[]", "3", '"muddle"', "null"):
        path.write_bytes(save({"a": np.zeros(1)}, metadata={KEY: text}))
        with pytest.raises(ModelFileError, match="its format must be"):
            muddle.load(path)


@pytest.mark.parametrize(
    "tensor",
    [
        {"dtype": "F64", "shape": [2**40], "data_offsets": [0, 2**43]},
        {"dtype": "F64", "shape": [2**62, 4], "data_offsets": [0, 8]},
        {"dtype": "F64", "shape": [0, 2**60], "data_offsets": [0, 0]},
        {"dtype": "F64", "shape": [1] * 70, "data_offsets": [0, 8]},
        {"dtype": "F64", "shape": [-1], "data_offsets": [0, 8]},
        {"dtype": "F64", "shape": [], "data_offsets": [0, 8]},
    ],
    ids=["longer than the file", "overflow", "empty", "many axes", "negative", "none"],
)
def test_shapes_that_promise_more_than_the_file_has(fitted, tmp_path, tensor):
    text = json.dumps(describe_model(fitted).header)
    path = tmp_path / "model.muddle"
    path.write_bytes(raw_file({"__metadata__": {KEY: text}, "temperature": tensor}, bytes(8)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ModelFileError):
        muddle.load(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kilobytes


def test_contents_are_read_without_torch_pandas_and_scikit_learn(path):
    blocked = ("torch", "pandas", "sklearn", "scipy", "narwhals")
    code = (
        "import sys\n"
        f"for name in {blocked}: sys.modules[name] = None\n"
        "from muddle.model_file.contents import read_contents\n"
        f"print(read_contents({str(path)!r}).header['estimator'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "BagMLRClassifier\n"


def test_contents_that_could_not_be_read_again_are_not_written(fitted, tmp_path):
    contents = describe_model(fitted)
    contents.arrays["temperature"] = -contents.arrays["temperature"]
    with pytest.raises(ModelFileError, match="temperature must be above 0"):
        write_contents(contents, tmp_path / "model.muddle")
    assert list(tmp_path.iterdir()) == []
