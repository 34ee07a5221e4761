"""Sources of rows that are read piece by piece, and the batches that are made of them."""

import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from muddle import MuddleWarning, TablePreprocessor
from muddle.errors import BadFileError, MissingDataError
from muddle.tables.batches import StreamBatches
from muddle.tables.counting import HeldOut, count_stream
from muddle.tables.stream import Stream, hash_places


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    n_rows = 600
    return pd.DataFrame(
        {
            "x": rng.normal(size=n_rows),
            "c": rng.choice(["a", "b", None], n_rows),
            "city": [f"city {i}" for i in rng.integers(0, 40, n_rows)],
            "y": np.arange(n_rows, dtype=float),
        }
    )


@pytest.fixture
def folder(frame, tmp_path):
    """Three files of two row groups each."""
    place = tmp_path / "rows"
    place.mkdir()
    for part in range(3):
        own = frame.iloc[part * 200 : (part + 1) * 200]
        own.to_parquet(place / f"part-{part}.parquet", row_group_size=100, index=False)
    return place


def read(source, **options):
    chunks = [chunk.rows for chunk in Stream(source, **options).read_all()]
    return pa.concat_tables(chunks, promote_options="permissive").to_pandas()


def test_every_kind_of_source_has_the_same_rows(frame, folder):
    import dask.dataframe as dd

    table = pa.Table.from_pandas(frame, preserve_index=False)
    sources = {
        "folder": folder,
        "text": str(folder),
        "files": sorted(folder.glob("*.parquet")),
        "dataset": ds.dataset(folder),
        "table": table,
        "polars": pl.from_pandas(frame),
        "lazy": pl.scan_parquet(folder / "*.parquet"),
        "dask": dd.from_pandas(frame, npartitions=3),
        "frames": [frame[:100], pl.from_pandas(frame[100:300]), table.slice(300)],
    }
    for name, source in sources.items():
        found = read(source)
        assert found["y"].tolist() == frame["y"].tolist(), name
        assert found["x"].tolist() == frame["x"].tolist(), name
        assert found["city"].astype(str).tolist() == frame["city"].tolist(), name
        assert found["c"].isna().tolist() == frame["c"].isna().tolist(), name


def test_hive_folders_are_columns(tmp_path, frame):
    for year in (2023, 2024):
        for region in ("north", "south west"):
            place = tmp_path / f"year={year}" / f"region={region.replace(' ', '%20')}"
            place.mkdir(parents=True)
            frame[:5].to_parquet(place / "a.parquet", index=False)
    found = read(tmp_path)
    assert found["year"].tolist() == [2023] * 10 + [2024] * 10
    assert found["region"].tolist()[:10] == ["north"] * 5 + ["south west"] * 5


def test_a_source_that_ends_after_the_first_time_is_refused(frame):
    with pytest.raises(TypeError, match="readable again and again"):
        Stream(iter([frame]))
    reader = pa.Table.from_pandas(frame).to_reader()
    with pytest.raises(TypeError, match="empty the second time"):
        Stream(reader)


def test_a_folder_that_is_missing_or_empty_is_named(tmp_path):
    (tmp_path / "rows").mkdir()
    with pytest.raises(MissingDataError, match="Did you mean 'rows'"):
        Stream(tmp_path / "row")
    with pytest.raises(MissingDataError, match="must have Parquet files"):
        Stream(tmp_path / "rows")


# --- bad files -----------------------------------------------------------------------------------


def spoil_page(path, group):
    """Overwrite the data of a row group, so that only reading it fails."""
    column = pq.ParquetFile(path).metadata.row_group(group).column(0)
    start = min(filter(None, (column.dictionary_page_offset, column.data_page_offset)))
    content = bytearray(path.read_bytes())
    content[start : start + 40] = b"\xff" * 40
    path.write_bytes(bytes(content))


def truncate(path):
    path.write_bytes(path.read_bytes()[:-200])


def drop_column(path):
    pd.read_parquet(path).drop(columns="city").to_parquet(path, index=False)


def change_type(path):
    frame = pd.read_parquet(path)
    frame.assign(x=frame["x"].astype(str)).to_parquet(path, index=False)


@pytest.mark.parametrize(
    ("spoil", "named", "n_left"),
    [
        (truncate, "part-1.parquet cannot be read", 400),
        (drop_column, "part-1.parquet must have .* lacks 'city'", 400),
        (change_type, "part-1.parquet must have .*string in column 'x' instead of double", 400),
        (lambda path: spoil_page(path, 1), "row group 1 of .*part-1.parquet cannot be read", 500),
    ],
    ids=["truncated", "column", "type", "page"],
)
def test_a_bad_file_is_named_or_left_out_and_counted(folder, spoil, named, n_left):
    path = folder / "part-1.parquet"
    spoil(path)
    with pytest.raises(BadFileError, match=named):
        read(folder)
    stream = Stream(folder, on_bad_file="skip")
    for _ in range(2):  # the same rows each time, and counted once
        assert sum(map(len, stream.read_all())) == n_left
    assert len(stream.bad_files) == 1
    options = TablePreprocessor(target_type="continuous")
    with pytest.warns(MuddleWarning, match=r"1 bad file\(s\) or row group\(s\) left out"):
        found = count_stream(stream, "y", "numbers", options)
    assert found.n_rows == n_left


def test_a_first_file_that_is_bad_is_left_out_as_well(folder):
    truncate(folder / "part-0.parquet")
    assert Stream(folder, on_bad_file="skip").n_rows == 400
    for part in (1, 2):
        truncate(folder / f"part-{part}.parquet")
    with pytest.raises(BadFileError, match="a file that can be read, got none"):
        Stream(folder, on_bad_file="skip")


# --- parts and batches ---------------------------------------------------------------------------


def make_batches(source, **options):
    stream = Stream(source)
    counted = count_stream(
        stream, "y", "numbers", TablePreprocessor(target_type="continuous"), **options
    )
    return StreamBatches(stream, counted, "y", lambda y: y[:, None], 1)


def labels_of(batches):
    return np.concatenate([labels[:, 0] for _, labels, _ in batches])


def test_parts_are_by_place_and_the_same_in_every_order(folder):
    rows = make_batches(folder, held_out=HeldOut.share(0.25, 3))
    parts = {}
    for part in ("train", "validation", "all"):
        own = labels_of(rows.batches(part, batch_size=70, shuffle=False))
        assert (np.diff(own) > 0).all()
        mixed = labels_of(rows.batches(part, batch_size=70, shuffle=True))
        assert sorted(mixed.tolist()) == own.tolist()
        assert mixed.tolist() != own.tolist()
        parts[part] = set(own.tolist())
    assert parts["train"] | parts["validation"] == parts["all"] == set(range(600))
    assert not parts["train"] & parts["validation"]
    assert rows.n_rows == len(parts["train"])
    assert 0.17 < len(parts["validation"]) / 600 < 0.33


def test_batches_follow_from_seed_and_epoch(folder):
    rows = make_batches(folder, n_sampled=100)

    def order(**options):
        return labels_of(rows.batches("train", batch_size=64, shuffle=True, **options)).tolist()

    assert order(seed=1, epoch=2) == order(seed=1, epoch=2)
    assert order(seed=1, epoch=2) != order(seed=1, epoch=3)
    assert order(seed=1, epoch=2) != order(seed=2, epoch=2)
    sizes = [len(f) for f, _, _ in rows.batches("all", batch_size=64, shuffle=True)]
    assert sizes == [64] * 9 + [24]


@pytest.mark.parametrize("n_ranks", [2, 4, 9])  # 9: more than there are row groups
def test_ranks_share_the_rows(folder, n_ranks):
    rows = make_batches(folder, n_sampled=100)
    own = [
        labels_of(
            rows.batches("all", batch_size=50, shuffle=True, rank=rank, n_ranks=n_ranks)
        ).tolist()
        for rank in range(n_ranks)
    ]
    assert sorted(label for labels in own for label in labels) == list(range(600))


def test_shuffled_rows_come_from_several_row_groups(folder):
    rows = make_batches(folder, n_sampled=100)
    first, *_ = rows.batches("all", batch_size=100, shuffle=True)
    assert len(set((first[1][:, 0] // 100).tolist())) >= 3


def test_features_are_those_of_the_plan_with_means_of_other_folds(folder, frame):
    rows = make_batches(folder, n_sampled=100)
    features = np.concatenate(
        [own for own, _, _ in rows.batches("all", batch_size=100, shuffle=False)]
    )
    plan = rows.counted.plan
    plain = plan.transform(frame.drop(columns="y"), "me")
    names = [name for _, name in plan.features]
    crossed = names.index("city=mean")
    others = [place for place in range(len(names)) if place != crossed]
    np.testing.assert_allclose(features[:, others], plain[:, others], rtol=1e-6, atol=1e-6)
    assert abs(features[:, crossed] - plain[:, crossed]).max() > 0.01
    # Changing the target of a row leaves its own feature as it is.
    changed = frame.copy()
    changed.loc[7, "y"] = 1e4
    other = make_batches([changed.iloc[i * 200 : (i + 1) * 200] for i in range(3)])
    block = other.read_block(next(other.stream.read_all()), "all")[0]
    shift = other.counted.plan.block.steps[0]
    raw = block[7, crossed] * shift.deviation[crossed] + shift.mean[crossed]
    shift = plan.block.steps[0]
    assert raw == pytest.approx(
        features[7, crossed] * shift.deviation[crossed] + shift.mean[crossed], rel=1e-4
    )


def test_hashes_of_places_are_uniform_and_differ_by_file_and_seed():
    rows = np.arange(20_000)
    found = hash_places(0, rows, 0)
    assert len(np.unique(found)) == len(rows)
    for bits in (found % np.uint64(5), found >> np.uint64(61)):
        counts = np.bincount(bits.astype(int))
        assert abs(counts - counts.mean()).max() < 5 * np.sqrt(counts.mean())
    for other in (hash_places(1, rows, 0), hash_places(0, rows, 1)):
        above = np.uint64(2**63)
        assert abs(np.corrcoef(found > above, other > above)[0, 1]) < 0.03


MEMORY = """
import sys, warnings
import pyarrow.parquet
from muddle.tables.batches import StreamBatches
from muddle.tables.counting import count_stream
from muddle.tables.preprocessor import TablePreprocessor
from muddle.tables.stream import Stream

def peak():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) / 1e3 for line in lines if line.startswith("VmHWM"))

stream = Stream([sys.argv[1]] * int(sys.argv[2]))
before = peak()
counted = count_stream(stream, "y", "numbers", TablePreprocessor(target_type="continuous"))
rows = StreamBatches(stream, counted, "y", lambda y: y[:, None], 1)
n_rows = sum(len(f) for f, _, _ in rows.batches("train", batch_size=4096, shuffle=True))
print(counted.n_rows, peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_does_not_grow_with_the_rows(tmp_path):
    rng = np.random.default_rng(0)
    n_rows = 200_000
    columns = {f"x{i}": rng.normal(size=n_rows) for i in range(12)}
    columns["c"] = rng.choice(list("abc"), n_rows)
    columns["city"] = np.array([f"city {i}" for i in range(500)])[rng.integers(0, 500, n_rows)]
    path = tmp_path / "rows.parquet"
    pd.DataFrame({**columns, "y": columns["x0"]}).to_parquet(path, row_group_size=50_000)
    grown = {}
    for times in (4, 16):  # 0.8 and 3.2 million rows: 90 and 360 MB as float64
        done = subprocess.run(
            [sys.executable, "-c", MEMORY, str(path), str(times)],
            capture_output=True,
            text=True,
            check=True,
        )
        found, grown[times] = map(float, done.stdout.split())
        assert found == n_rows * times
    assert grown[16] < grown[4] + 60, grown
