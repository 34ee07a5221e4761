"""The benchmarks, each run on settings of a second."""

import functools
import importlib.util
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import Ridge

from muddle.core.loss import combine, make_loss
from muddle.core.ridge import apply_ridge, factor_with_recovery, gram_matrix
from muddle_bench.run import sweep, workers

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@functools.cache
def load(name):
    """A benchmark as a module; they import each other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
        spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        patch.setitem(sys.modules, name, module)  # where dataclasses look for their types
        spec.loader.exec_module(module)
    return module


@pytest.fixture
def textbook():
    return load("textbook")


@pytest.fixture
def speed():
    return load("speed")


@pytest.fixture
def growth():
    return load("growth")


@pytest.fixture
def busy():
    return load("busy")


@pytest.fixture
def soak():
    return load("soak")


@pytest.fixture
def runner():
    return load("runner")


@pytest.mark.parametrize(("n_rows", "width"), [(12, 5), (5, 12)])
def test_textbook_loss_is_the_loss_of_the_core(textbook, n_rows, width):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.rand(n_rows, width, generator=generator)
    labels = torch.randn(n_rows, 1, generator=generator)
    permuted = torch.stack([labels[torch.randperm(n_rows, generator=generator), 0]] * 3, dim=1)
    penalty = torch.tensor(0.7)
    projector, deviation = textbook.make_projector(hidden, penalty), labels.std(correction=0)
    options = {"structured_noise": 0.0, "dither": 0.0, "generator": generator}
    naive = textbook.mlr_loss(hidden, projector, labels, permuted, deviation, **options)

    loss = make_loss("regression", "root_mean_square", structured_noise=False)
    stack = torch.cat([labels, permuted], dim=1)[None, :, :, None]
    factor = factor_with_recovery(gram_matrix(hidden[None]), penalty[None])
    residual, _ = apply_ridge(hidden[None], stack.flatten(2), factor)
    weights = torch.ones(1, n_rows)
    errors = loss.errors(residual.reshape(stack.shape), stack, weights)
    ours = combine(errors, loss.baseline(stack[:, :, 0], weights)).total
    assert torch.allclose(naive, ours[0], atol=1e-5)


@pytest.mark.parametrize("batch_size", [64, 24])
def test_textbook_net_learns_with_and_without_batches(textbook, batch_size):
    X, y = textbook.make_table(64, n_features=3)
    fit = textbook.fit_textbook(
        X, y, depth=2, width=24, n_iterations=30, batch_size=batch_size, learning_rate=1e-2
    )
    scaled = torch.tensor((X - X.mean(0)) / X.std(0, ddof=1), dtype=torch.float32)
    error = fit.predict(scaled)[:, 0].numpy() - (y - y.mean()) / y.std()
    assert 1 - np.mean(error**2) > 0.5
    assert fit.score > 0.4
    assert len(fit.seconds) == 31
    assert sum(fit.seconds) <= fit.total


def test_textbook_head_is_solved_on_all_training_rows_when_there_are_batches(textbook):
    X, y = textbook.make_table(64, n_features=3)
    fit = textbook.fit_textbook(
        X, y, depth=1, width=8, n_iterations=0, batch_size=16, penalty=0.5, seed=3
    )
    rows = torch.randperm(80, generator=torch.Generator().manual_seed(3))[16:].numpy()
    table = torch.tensor((X - X.mean(0)) / X.std(0, ddof=1), dtype=torch.float32)
    hidden = textbook.hidden_of(fit.layers, table[rows]).numpy()
    ridge = Ridge(alpha=0.5 * 64 / 16, fit_intercept=False)
    ridge.fit(hidden, ((y - y.mean()) / y.std())[rows])
    np.testing.assert_allclose(fit.head[:, 0].numpy(), ridge.coef_, atol=1e-4)


def test_textbook_starts_between_two_points_of_the_papers_grid(textbook):
    X, y = textbook.make_table(40, n_features=3)
    fit = textbook.fit_textbook(X, y, depth=1, width=16, n_iterations=0)
    middles = [np.sqrt(low * high) for low, high in pairwise(np.logspace(-1, 4, 12))]
    assert np.isclose(fit.first_penalty, middles, rtol=1e-4).sum() == 1


@pytest.mark.parametrize("n_train", [82, 436, 1070, 7008])
def test_table_leaves_the_wanted_training_rows(speed, textbook, n_train):
    setting = speed.Setting(*textbook.make_table(n_train), "cpu", 10, 1024, 200, 1024, "train")
    assert setting.n_train == n_train


def test_operations_by_hand(speed):
    # 2 rows, 3 units, 1 feature, 1 permutation (3 columns), 1 validation row: dual, system of 2.
    sizes = dict(width=3, n_features=1, n_train=2, n_validation=1, n_permutations=1)
    layer = 2 * 2 * 3  # forward, and the gradient of the weights
    ridge = 2 * 2 * 3 * 2 + 8 / 3 + 2 * 2 * 4 * 3 + 8 * 2 * 3 * 3 + 2 * 2 * 3
    validation = 2 * (3 + 3)
    expected = (2 * layer + ridge + validation) / 1e9
    assert speed.count_gflop(1, batch_size=2, **sizes) == pytest.approx(expected)


def test_operations_with_batches_count_the_head_of_all_rows(speed):
    sizes = dict(width=64, n_features=5, n_validation=20, batch_size=32)
    small = speed.count_gflop(2, n_train=32, **sizes)
    # forward, Gram matrix and right-hand side of 80 rows, Cholesky of 64
    head = 2 * 80 * (5 * 64 + 64**2 + 64**2 + 64) + 64**3 / 3 - 2 * 32 * 64
    assert speed.count_gflop(2, n_train=80, **sizes) == pytest.approx(small + head / 1e9)


def test_speed_writes_a_line_per_row_and_names_what_it_skips(speed, tmp_path, capsys, monkeypatch):
    absent = speed.Contestant("catboost", speed.fit_catboost, requires="no_such_package")
    monkeypatch.setattr(speed, "PEERS", (absent,))
    out = tmp_path / "speed.csv"
    small = ["--rows", "40", "56", "--devices", "cpu", "--nets", "2", "--width", "16"]
    short = ["--iterations", "3", "--repeats", "1", "--textbook-nets", "3"]
    speed.main([*small, *short, "--commit", "abc", "--out", str(out)])
    assert "catboost skipped: needs no_such_package" in capsys.readouterr().out
    table = pd.read_csv(out)
    assert table.train_rows.tolist() == [40, 56]
    assert (table.nets == 4).all()
    assert (table[["ens_mlr_s", "ens_mlr_reduced_s"]] > 0).all(axis=None)
    assert (table.ratio > 0).all()
    assert table.catboost_s.isna().all()
    assert (table.commit == "abc").all()
    assert table[["hardware", "torch", "threads"]].notna().all(axis=None)


def test_ratio_and_rate_are_those_of_the_seconds(speed, textbook):
    setting = speed.Setting(*textbook.make_table(436), "cpu", 10, 64, 200, 1024, "train")
    seconds = {"ens_mlr": 2.0, "ens_mlr_reduced": 1.0, "textbook": 100.0, "catboost": 0.5}
    line = speed.describe_row(setting, seconds, 4)
    assert (line["ratio"], line["ratio_reduced"]) == (50.0, 100.0)
    assert (line["catboost_s"], line["realmlp_s"]) == (0.5, None)
    held_up = speed.describe_row(setting, {**seconds, "ens_mlr": 7000.0}, 4)
    assert held_up["ratio"] == 0.0143
    sizes = dict(width=64, n_features=10, n_train=436, n_validation=109, batch_size=1024)
    gflop = 10 * sum(speed.count_gflop(depth, **sizes) for depth in (1, 2))
    assert line["gflop_per_iteration"] == pytest.approx(gflop, abs=0.005)
    assert line["gflop_per_s"] == pytest.approx(gflop * 200 / 2.0, abs=0.5)
    # weights, biases and penalty of ten nets of each depth, 28 bytes each
    n_parameters = 10 * (10 * 64 + 64 + 1) + 10 * (10 * 64 + 64**2 + 128 + 1)
    assert line["adam_mb_per_iteration"] == pytest.approx(n_parameters * 28 / 1e6, abs=0.05)


def test_textbook_time_counts_each_depth_for_all_its_nets(speed, textbook, monkeypatch):
    monkeypatch.setattr(speed, "fit_ens_mlr", lambda *_, **__: None)
    monkeypatch.setattr(speed, "time_textbook", lambda _, depth, *__: {1: 1.0, 2: 10.0}[depth])
    setting = speed.Setting(*textbook.make_table(40), "cpu", 10, 16, 3, 1024, "train")
    assert speed.measure(setting, [], n_turns=2, n_textbook=3)["textbook"] == 110.0


def test_busy_measures_each_model_beside_another_process(busy, tmp_path):
    out = tmp_path / "busy.csv"
    models = ["MLRRegressor", "EnsMLRRegressor"]
    busy.main(["--quick", "--models", *models, "--commit", "abc", "--out", str(out)])
    table = pd.read_csv(out)
    assert table.model.tolist() == models
    assert (table[["quiet_s", "busy_s", "ratio"]] > 0).all(axis=None)
    with busy.busy_cores() as other:
        assert other.poll() is None
    assert other.poll() is not None


def test_growth_measures_each_point_in_its_own_process(growth, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(growth, "DEPTHS", (1,))
    out = tmp_path / "growth.csv"
    sizes = ["--nets", "1", "2", "--rows", "80", "--width", "16"]
    growth.main(["--studies", "nets", *sizes, "--seconds", "0.01", "--out", str(out)])
    table = pd.read_csv(out)
    assert table.nets.tolist() == [1, 2]
    assert (table[["rows", "width", "depth"]] == [80, 16, 1]).all(axis=None)
    assert (table.iteration_s >= 0).all()
    assert (table.peak_mb >= 0).all()
    text = capsys.readouterr().out
    assert "nets, depth 1: slope of the last step" in text
    assert f"drawn in {tmp_path / 'growth.png'}" in text
    (tmp_path / "growth.png").unlink()
    growth.main(["--plot", str(out)])
    assert (tmp_path / "growth.png").stat().st_size > 0


def test_a_point_whose_process_fails_is_named(growth, monkeypatch):
    monkeypatch.setattr(sys, "executable", "false")
    point = growth.Point(rows=80, width=16, nets=1, depth=1, device="cpu")
    with pytest.raises(RuntimeError, match=r"rows=80.* ended with status 1"):
        growth.measure_apart(point, 0.01)


def test_slope_is_the_exponent_of_the_last_step(growth):
    assert growth.last_slope([1, 10, 20], [5.0, 1.0, 4.0]) == pytest.approx(2.0)
    assert np.isnan(growth.last_slope([1, 2], [0.0, 1.0]))


def test_soak_passes_when_memory_stays(soak, capsys):
    soak.main(["--fits", "3", "--after", "2", "--every", "1", "--rows", "40", "--width", "16"])
    text = capsys.readouterr().out
    assert text.count("resident") == 4
    assert "since fit 2" in text


def test_soak_ends_with_status_1_when_memory_grows(soak, monkeypatch):
    held = iter([100.0, 110.0, 131.0])
    monkeypatch.setattr(soak, "fit_once", lambda *_: None)
    monkeypatch.setattr(soak, "measure_memory", lambda _: {"resident": next(held)})
    with pytest.raises(SystemExit) as end:
        soak.main(["--fits", "3", "--after", "2", "--every", "1"])
    assert end.value.code == 1


@pytest.fixture
def one_worker(monkeypatch):
    """Runs share a worker process, as starting one takes seconds."""
    stop_children = workers.stop_children
    for module in (workers, sweep):
        monkeypatch.setattr(module, "stop_children", lambda: None)
    yield
    stop_children()


def test_runner_and_loop_are_timed_on_the_same_cells(runner, one_worker, tmp_path, capsys):
    out = tmp_path / "runner.csv"
    records = ["--methods", "4", "--datasets", "4", "--splits", "2"]
    runner.main(["--cells", "3", "--repeats", "1", *records, "--out", str(out)])
    table = pd.read_csv(out).set_index("what")
    assert table.loc[["plain loop", "runner", "runner, all there before"], "items"].eq(3).all()
    assert table.loc[["read_table", "rank_methods, R²", "write_report"], "items"].eq(32).all()
    assert (table["seconds"] > 0).all()
    assert "The runner adds" in capsys.readouterr().out


def test_time_of_a_cell_is_without_the_start_of_the_runner(runner, tmp_path, monkeypatch):
    seconds = {"loop": 1.0, "start": 2.0, "runner": 4.0, "again": 0.5}
    monkeypatch.setattr(runner, "best_seconds", lambda *_: seconds)
    rows = {row["what"]: row for row in runner.measure_cells(tmp_path, 5, 1)}
    assert rows["plain loop"]["ms_per_cell"] == 200
    assert rows["runner"]["ms_per_cell"] == 500  # two seconds for the four cells after the first
    assert rows["runner, all there before"]["ms_per_cell"] == 100


def test_a_runner_with_other_scores_than_the_loop_is_not_timed(runner, tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "run_cells", lambda *_: [0.0, 0.0])
    with pytest.raises(AssertionError, match="the same scores"):
        runner.measure_cells(tmp_path, 2, 1)


def test_latency_is_measured_beside_catboost(tmp_path):
    pytest.importorskip("catboost")
    latency = load("latency")
    latency.main(["--quick", "--commit", "none", "--out", str(tmp_path / "latency.csv")])
    table = pd.read_csv(tmp_path / "latency.csv")
    single = table[(table.rows == 1) & (table.table == "numbers")]
    ours = single[(single.runtime == "runtime") & (single.input == "array")]
    names = ["MLRRegressor", "EnsMLRRegressor", "MuddleRegressor", "compact"]
    assert ours.model.tolist() == names
    assert (table.file_bytes.notna() == table.model.isin(names)).all()
    assert (table.ratio[table.model == "CatBoost"] == 1).all()
    assert (table.p99_us.dropna() >= table.median_us[table.p99_us.notna()]).all()
    assert table.rows_per_s.notna().equals(table.rows > 1)
    assert {"record", "frame"} == set(table.input[table.table == "mixed"])


def test_latency_leaves_out_the_first_calls():
    latency = load("latency")
    asked = []
    assert len(latency.time_calls(asked.append, 1, 3)) == 3
    assert len(asked) == latency.UNCOUNTED + 3


def test_seconds_of_a_page_and_of_a_summary_are_measured(tmp_path):
    pytest.importorskip("jinja2")
    fit_report = load("fit_report")
    fit_report.main(["--quick", "--commit", "none", "--out", str(tmp_path / "times.csv")])
    table = pd.read_csv(tmp_path / "times.csv")
    assert table.what.tolist() == ["first page", "page", "summary"]
    assert (table.cpu_s >= 0).all()


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("tables", 4),
        ("limits", 3),
        pytest.param("threads", 1, marks=pytest.mark.slow),
        pytest.param("files", 20, marks=pytest.mark.slow),
        pytest.param("csv", 4, marks=pytest.mark.slow),
        pytest.param("kills", 3, marks=pytest.mark.slow),
        pytest.param("disk", 2, marks=pytest.mark.slow),
    ],
)
def test_attacks_find_no_fault(name, count, tmp_path, capsys):
    out = tmp_path / "attacks.csv"
    assert load("attack").main([name, "--count", str(count), "--out", str(out)]) == 0
    (row,) = pd.read_csv(out).to_dict("records")
    assert (row["attack"], row["count"], row["fault"]) == (name, count, 0)
    assert row["answered"] + row["refused"] == count


def test_forged_files_are_answered_or_refused(tmp_path, monkeypatch, capsys):
    attack = load("attack")
    table = pd.DataFrame({"a": np.arange(20.0), "b": ["x", "y"] * 10})
    path = attack.MLRRegressor(**attack.SMALL).fit(table, table["a"]).save(tmp_path / "m.muddle")
    monkeypatch.setattr(attack, "make_models", lambda _: [(path, table)])
    assert attack.main(["files", "--count", "40", "--show-refusals"]) == 0
    said = capsys.readouterr().out
    assert "answered: m.muddle" in said
    assert "ModelFileError" in said


def test_a_fault_is_told_from_a_refusal_and_gives_status_1(monkeypatch, capsys):
    attack = load("attack")
    X = pd.DataFrame({"a": np.arange(8.0)})
    net = attack.MLRRegressor(**attack.SMALL)
    endless = Ridge().fit(X, X["a"])
    endless.intercept_ = np.inf
    planted = {
        "infinite": lambda: attack.check_rows(endless, X),
        "no number": lambda: attack.check_rows(Ridge().fit(X, X["a"]), X.assign(a=np.nan)),
        "other": lambda: attack.check_rows(net.fit(X, X["a"]), X),
        "words": lambda: net.fit(X, ["a"] * 8),
    }
    monkeypatch.setitem(attack.ATTACKS, "tables", (lambda *_: planted.items(), 3))
    assert attack.main(["tables"]) == 1
    said = capsys.readouterr().out
    assert "fault: no number\n    ValueError: Input X contains NaN" in said
    assert "fault: infinite\n    answers are not finite" in said
    assert "answered 1, refused 1, fault 2" in said


def test_explanations_are_measured_against_values_of_many_orders(tmp_path):
    explain = load("explain")
    explain.main(["--quick", "--commit", "none", "--out", str(tmp_path / "explain.csv")])
    table = pd.read_csv(tmp_path / "explain.csv")
    ours = table[table.explainer == "explain, 50 background rows"]
    assert len(ours) == 3
    assert (ours.error < 0.05).all()
    assert (table.ratio_to_predict > 1).all()


def test_a_big_table_has_the_r2_it_states_and_the_rows_of_its_seed(tmp_path, capsys):
    big_table, arrow = load("big_table"), pytest.importorskip("pyarrow.parquet")
    about = big_table.write(tmp_path / "one", 2500, seed=3, group_rows=100)
    files = sorted((tmp_path / "one" / "train").iterdir())
    assert [arrow.ParquetFile(file).num_row_groups for file in files] == [10, 10, 5]
    table = arrow.read_table(tmp_path / "one" / "train")
    assert (table.num_rows, about["columns"]) == (2500, 30)
    assert arrow.read_table(tmp_path / "one" / "test").num_rows == 25
    for name in ("x4", "x5", "online", "delivered"):
        assert table[name].null_count > 0
    # The signal is a function of what stands in the files, so nothing reaches more than the rest.
    columns = big_table.from_arrow(table)
    left = np.square(columns["y"] - big_table.signal(columns)).sum()
    r2 = 1 - left / np.square(columns["y"] - columns["y"].mean()).sum()
    assert r2 == pytest.approx(about["train"]["best_r2"], abs=1e-9)
    assert r2 == pytest.approx(big_table.BEST_R2, abs=0.03)
    # The same seed gives the same rows, in more rows too.
    big_table.write(tmp_path / "again", 2500, seed=3, group_rows=100)
    assert arrow.read_table(tmp_path / "again" / "train").equals(table)
    big_table.write(tmp_path / "other", 2500, seed=4, group_rows=100)
    assert not arrow.read_table(tmp_path / "other" / "train").equals(table)
    with pytest.raises(FileExistsError, match="must be an empty or a new folder"):
        big_table.main([str(tmp_path / "one")])


def test_the_cost_model_finds_known_constants_and_extends_them(tmp_path, monkeypatch, capsys):
    cost_model = load("cost_model")
    gflop = np.array([0.1, 1.0, 10.0])
    known = cost_model.fit_constants(gflop, 0.002 + gflop / (0.5 * 100), 100e9)
    assert (known.latency, known.efficiency) == pytest.approx((0.002, 0.5))
    assert known.seconds(5.0) == pytest.approx(0.102)
    # Each of four processes sends three quarters of the numbers twice.
    assert cost_model.ring_bytes(1000, 4) == 6000
    monkeypatch.setattr(cost_model, "measure_ring", lambda ranks, n: (0.1, 2.0 * n))
    options = ["--quick", "--seconds", "0.01", "--rows", "2000", "--commit", "none"]
    cost_model.main([*options, "--out", str(tmp_path)])
    measured = pd.read_csv(tmp_path / "cost_measured.csv")
    assert (measured.measured > 0).all()
    further = pd.read_csv(tmp_path / "cost_extrapolated.csv").set_index(["machine", "rows"])
    many, one = further.loc["1,000 H200", 10**9], further.loc["1 H200", 10**9]
    assert many.compute_s == pytest.approx(one.compute_s / 1000, rel=0.01)
    assert many.count_all_rows_on_each_s == one.count_all_rows_on_each_s
    assert (one.average_s, many.average_s > 0) == (0, True)
    capsys.readouterr()
    cost_model.main(["--reuse", "--out", str(tmp_path)])  # the same from the file
    assert "1,000 H200" in capsys.readouterr().out
    again = pd.read_csv(tmp_path / "cost_extrapolated.csv").set_index(["machine", "rows"])
    pd.testing.assert_frame_equal(again, further, rtol=0.01)


@pytest.mark.slow
def test_a_ring_of_processes_sends_what_the_cost_model_counts():
    cost_model = load("cost_model")
    seconds, sent = cost_model.measure_ring(2, 100_000)
    assert seconds > 0
    if sent > 0:  # elsewhere than on Linux, loopback is not counted
        assert sent == pytest.approx(cost_model.ring_bytes(100_000, 2), rel=0.5)


def test_rows_beyond_memory_are_encoded_for_xgboost(tmp_path, monkeypatch, capsys):
    big_table, out_of_core = load("big_table"), load("out_of_core")
    big_table.write(tmp_path / "big", 600, seed=0, group_rows=200)
    train = tmp_path / "big" / "train"
    groups = list(out_of_core.read_groups(train))
    assert [len(group) for group in groups] == [200, 200, 200]
    levels = out_of_core.find_levels(train)
    assert set(levels) == {"town", "product", "shop", "grade", "note"}
    assert sorted(levels["grade"].to_pylist()) == list("ABCDE")
    levels["grade"] = levels["grade"].slice(1)  # a level that training rows did not have
    matrix = out_of_core.encode(groups[0], levels)
    assert (matrix.shape, matrix.dtype) == ((200, 30), np.float32)
    names = [name for name in groups[0].column_names if name != "y"]
    grades = groups[0]["grade"].to_pylist()
    codes = matrix[:, names.index("grade")]
    known = levels["grade"].to_pylist()
    assert [known[int(code)] for code in codes if code == code] == [g for g in grades if g in known]
    assert np.isnan(codes).sum() == sum(grade not in known for grade in grades) > 0
    for name in ("x5", "online", "delivered"):
        assert np.isnan(matrix[:, names.index(name)]).sum() == groups[0][name].null_count > 0
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setattr(out_of_core.importlib.util, "find_spec", lambda _: None)
    out_of_core.main([str(tmp_path / "big"), "--models", "xgboost", "--out", str(tmp_path / "x")])
    assert "xgboost skipped: needs xgboost" in capsys.readouterr().out


@pytest.mark.slow
def test_models_beyond_memory_are_measured_in_processes_of_their_own(tmp_path, monkeypatch):
    pytest.importorskip("xgboost")
    monkeypatch.syspath_prepend(BENCHMARKS)
    big_table, out_of_core = load("big_table"), load("out_of_core")
    big_table.write(tmp_path / "big", 20_000, seed=0)
    out = tmp_path / "out.csv"
    out_of_core.main(
        [str(tmp_path / "big"), "--models", "xgboost", "--rounds", "20", "--out", str(out)]
    )
    (row,) = pd.read_csv(out).to_dict("records")
    assert (row["rows"], row["columns"]) == (20_000, 30)
    assert 0.1 < row["r2"] < row["best_r2"]
    assert row["base_mb"] < row["fit_peak_mb"] <= row["peak_mb"]
    assert [path.name for path in (tmp_path / "big").iterdir() if "tmp" in path.name] == []


def test_a_service_under_load_answers_right_and_refuses_bad_rows(tmp_path):
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    load("serve").main(["--quick", "--commit", "none", "--out", str(tmp_path / "serve.csv")])
    table = pd.read_csv(tmp_path / "serve.csv")
    assert table.status.tolist() == [200, 200, 200, 422]
    assert (table.requests == 20).all()


def test_an_answer_that_is_not_the_models_ends_the_load(monkeypatch):
    serve = load("serve")
    wrong = [serve.Answer(0, 200, {"predictions": [1.0]}, 0.01)]
    monkeypatch.setattr(serve, "load", lambda *_: wrong)
    table, service = serve.make_table(2)[0], serve.psutil.Process()
    model = type("Model", (), {"predict": lambda self, rows: np.zeros(len(rows))})()
    with pytest.raises(AssertionError, match="status 200 for question 0"):
        serve.measure_case(serve.Case(1, 1), 0, service, table, model, serve.QUICK)
