"""Many nets in one call: groups, memory, time, patience, precision, CUDA."""

import gc
import math
import warnings
from dataclasses import replace

import pytest
import torch

from muddle.errors import DivergenceError, NotEnoughMemoryError
from muddle.training import jobs as jobs_module
from muddle.training import planning, ridge_output
from muddle.training.config import TrainConfig
from muddle.training.data import TrainingData, TrainJob
from muddle.training.jobs import is_out_of_memory, train_jobs
from muddle.training.planning import (
    Share,
    bytes_per_net,
    halve,
    net_cost,
    plan_waves,
    shared_bytes,
)
from muddle.training.results import merge_results
from muddle.training.stopping import Deadline, NetStatus
from muddle.training.trainer import Trainer, iterations_ahead

CPU = torch.device("cpu")
CUDA = torch.device("cuda")
SMALL = TrainConfig(depth=2, width=24, max_iter=8, n_permutations=3, dither=0.03)
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def make_job(config=SMALL, n_nets=6, n_rows=40, weights=None):
    generator = torch.Generator().manual_seed(5)
    features = torch.randn(n_rows, 4, generator=generator)
    labels = features[:, :1] + 0.3 * torch.randn(n_rows, 1, generator=generator)
    if config.task == "classification":
        labels = torch.where(labels > 0, 1.0, -1.0)
    orders = torch.stack([torch.randperm(n_rows, generator=generator) for _ in range(n_nets)])
    n_validation = n_rows // 5
    data = TrainingData(
        features, labels, weights, orders[:, n_validation:], orders[:, :n_validation]
    )
    return TrainJob(config, data, tuple(range(n_nets)))


def fit(*jobs, device=CPU, limit=None, **options):
    return train_jobs(jobs, device=device, deadline=Deadline(limit), **options)


def assert_same(ours, theirs, atol=1e-5):
    assert ours.kept == theirs.kept
    assert torch.equal(ours.best_iteration, theirs.best_iteration)
    assert torch.equal(ours.n_iterations, theirs.n_iterations)
    for name in ("head", "validation_output", "score", "penalty"):
        torch.testing.assert_close(getattr(ours, name), getattr(theirs, name), rtol=1e-4, atol=atol)
    for name in ("loss", "score", "penalty"):
        torch.testing.assert_close(
            getattr(ours.history, name),
            getattr(theirs.history, name),
            rtol=1e-4,
            atol=atol,
            equal_nan=True,
        )


class Watcher:
    def __init__(self):
        self.n_net_iterations, self.said, self.scores = 0, [], []

    def advance(self, n_net_iterations, loss, score):
        assert math.isfinite(loss)
        self.n_net_iterations += n_net_iterations
        self.scores.append(score)

    def say(self, text):
        self.said.append(text)


@pytest.mark.parametrize("batch_size", [4096, 10])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_any_grouping_gives_the_same_nets(size, batch_size, monkeypatch):
    job = make_job(replace(SMALL, batch_size=batch_size))
    (together,) = fit(job)
    monkeypatch.setattr(planning, "MOST_ON_CPU", shared_bytes(job, CPU) + size * one(job))
    watcher = Watcher()
    (grouped,) = fit(job, reporter=watcher)
    assert f"in groups of {max_group(6, size)}," in watcher.said[0]
    assert watcher.n_net_iterations == 6 * 9
    assert_same(grouped, together)


def one(job):
    return bytes_per_net(job, CPU)


def max_group(n_nets, size):
    return math.ceil(n_nets / math.ceil(n_nets / size))


def test_jobs_side_by_side_equal_each_alone():
    jobs = [make_job(), make_job(replace(SMALL, depth=1, max_iter=12), n_nets=3)]
    for beside, job in zip(fit(*jobs), jobs, strict=True):
        assert_same(beside, fit(job)[0])


def test_groups_of_unequal_length_are_merged_with_gaps():
    long, short = (fit(make_job(replace(SMALL, max_iter=n), n_nets=2))[0] for n in (8, 3))
    merged = merge_results([short, long], [2, 2])
    assert merged.kept == [0, 1, 2, 3]
    assert merged.history.loss.shape == (9, 4)
    assert merged.history.loss[4:, :2].isnan().all()
    assert torch.equal(merged.history.loss[:, 2:], long.history.loss)
    assert torch.equal(merged.nets.weights[1][:2], short.nets.weights[1])
    assert merged.n_iterations.tolist() == [3, 3, 8, 8]


def test_a_net_that_is_lost_in_one_group_leaves_the_others_their_places(monkeypatch):
    job = make_job(replace(SMALL, head="train"), n_nets=4)
    data = job.data
    features = torch.cat([data.features, torch.full((1, 4), 1e25)])
    labels = torch.cat([data.labels, torch.zeros(1, 1)])
    train_rows = data.train_rows.clone()
    train_rows[0, 0] = 40  # the poisoned row, in no other net
    data = replace(data, features=features, labels=labels, train_rows=train_rows)
    monkeypatch.setattr(planning, "MOST_ON_CPU", shared_bytes(job, CPU) + 2 * one(job))
    (result,) = fit(replace(job, data=data))
    assert result.kept == [1, 2, 3]


def test_merged_nets_are_named_by_their_place_among_all_that_were_asked_for():
    (result,) = fit(make_job(n_nets=2))
    merged = merge_results([replace(result, kept=[0, 2]), replace(result, kept=[1, 3])], [3, 4])
    assert merged.kept == [0, 2, 4, 6]


# ---------------------------------------------------------------------------- memory


def test_the_plan_knows_every_size_that_matters():
    base = bytes_per_net(make_job(n_rows=400), CPU)
    for larger in (
        replace(SMALL, width=240),
        replace(SMALL, depth=4),
        replace(SMALL, n_permutations=300),
        replace(SMALL, activation="mish"),
        replace(SMALL, precision="reduced"),
    ):
        assert bytes_per_net(make_job(larger, n_rows=400), CPU) > base
    assert bytes_per_net(make_job(n_rows=4000), CPU) > 2 * base
    assert bytes_per_net(make_job(n_rows=400, weights=torch.ones(400)), CPU) > base
    batched = make_job(replace(SMALL, batch_size=100), n_rows=400)
    assert bytes_per_net(batched, CPU) < base


@pytest.mark.parametrize(("n_fit", "sizes"), [(6, [6]), (5, [3, 3]), (4, [3, 3]), (2, [2, 2, 2])])
def test_nets_are_divided_evenly_among_as_few_groups_as_fit(n_fit, sizes, monkeypatch):
    job = make_job()
    budget = shared_bytes(job, CPU) + n_fit * one(job)
    monkeypatch.setattr(planning, "available_memory", lambda _: math.ceil(budget / planning.USABLE))
    waves = plan_waves([job], CPU)
    assert [share.n_nets for (share,) in waves] == sizes
    assert [share.start for (share,) in waves] == [sum(sizes[:i]) for i in range(len(sizes))]


def test_a_share_of_the_memory_holds_fewer_nets(monkeypatch):
    job = make_job()
    budget = 2 * (shared_bytes(job, CPU) + 3 * one(job))
    monkeypatch.setattr(planning, "available_memory", lambda _: math.ceil(budget / planning.USABLE))
    assert len(plan_waves([job], CPU)) == 1
    assert len(plan_waves([job], CPU, memory_share=0.5)) == 2


def test_where_memory_is_unknown_nothing_is_refused(monkeypatch):
    monkeypatch.setattr(planning, "available_memory", lambda _: None)
    assert len(plan_waves([make_job()], CPU)) == 1


@pytest.mark.parametrize(
    ("change", "parameters"),
    [
        ({"width": 4096}, "Lower width or batch_size"),
        ({"n_permutations": 4096, "width": 8}, "Lower n_permutations or"),
    ],
)
def test_a_net_that_can_never_fit_is_refused_with_sizes_and_parameter(
    change, parameters, monkeypatch
):
    monkeypatch.setattr(planning, "available_memory", lambda _: 2**20)
    job = make_job(replace(SMALL, **change), n_rows=600)
    with pytest.raises(NotEnoughMemoryError, match=r"rows at a time needs .* GiB of memory on cpu"):
        fit(job)
    with pytest.raises(NotEnoughMemoryError, match=parameters):
        fit(job)


def test_cuda_runs_jobs_side_by_side_if_they_fit(monkeypatch):
    jobs = [make_job(), make_job(replace(SMALL, depth=1))]
    monkeypatch.setattr(planning, "available_memory", lambda _: 2**40)
    assert plan_waves(jobs, CUDA) == [(Share(0, 0, 6), Share(1, 0, 6))]
    assert plan_waves(jobs, CPU) == [(Share(0, 0, 6),), (Share(1, 0, 6),)]
    need = sum(shared_bytes(job, CUDA) + 6 * bytes_per_net(job, CUDA) for job in jobs)
    monkeypatch.setattr(planning, "available_memory", lambda _: need)
    assert all(len(wave) == 1 for wave in plan_waves(jobs, CUDA))


def test_waves_are_halved_down_to_one_net():
    assert halve((Share(0, 0, 2), Share(1, 0, 2))) == [(Share(0, 0, 2),), (Share(1, 0, 2),)]
    assert halve((Share(0, 2, 5),)) == [(Share(0, 2, 3),), (Share(0, 3, 5),)]
    assert halve((Share(0, 3, 4),)) is None


@pytest.fixture
def short_of_memory(monkeypatch):
    """Trainers of more than so many nets fail at their third iteration, as a device would."""

    def limit(most, error):
        original = Trainer.advance

        def advance(self):
            if self.iteration == 3 and len(self.places) > most:
                raise error
            original(self)

        monkeypatch.setattr(Trainer, "advance", advance)

    return limit


OUT_OF_MEMORY = [
    RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
    MemoryError(),
    torch.cuda.OutOfMemoryError("CUDA out of memory."),
]


@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=lambda error: type(error).__name__)
def test_running_out_of_memory_halves_the_group_and_changes_nothing(error, short_of_memory):
    job = make_job()
    (free,) = fit(job)
    short_of_memory(2, error)
    watcher = Watcher()
    (halved,) = fit(job, reporter=watcher)
    assert_same(halved, free)
    assert len(watcher.said) == 3  # six nets, then twice three of them
    assert "ran out with 6 nets side by side" in watcher.said[0]


def test_nets_keep_their_order_when_an_early_group_is_halved(short_of_memory, monkeypatch):
    job = make_job(n_nets=7)
    (free,) = fit(job)
    monkeypatch.setattr(planning, "MOST_ON_CPU", shared_bytes(job, CPU) + 4 * one(job))
    short_of_memory(3, MemoryError())  # the first group has four nets, the second three
    (halved,) = fit(job)
    assert_same(halved, free)


def test_one_net_that_runs_out_of_memory_is_an_error(short_of_memory):
    short_of_memory(0, MemoryError())
    with pytest.raises(NotEnoughMemoryError, match="one net of depth 2 and width 24"):
        fit(make_job())


def test_other_errors_are_not_taken_for_lack_of_memory(short_of_memory):
    short_of_memory(0, RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    with pytest.raises(RuntimeError, match="shapes"):
        fit(make_job())
    assert not is_out_of_memory(NotEnoughMemoryError("refused by the plan"))


def test_nothing_of_a_fit_stays_in_memory():
    fit(make_job())
    gc.collect()
    before = sum(1 for kept in gc.get_objects() if type(kept) is Trainer)
    fit(make_job())
    gc.collect()
    assert sum(1 for kept in gc.get_objects() if type(kept) is Trainer) == before


# ---------------------------------------------------------------------------- stopping


@pytest.mark.parametrize("batch_size", [4096, 10])
def test_patience_stops_each_net_on_its_own_and_keeps_its_best(batch_size):
    config = replace(SMALL, max_iter=60, learning_rate=0.05, batch_size=batch_size)
    (free,) = fit(make_job(config))
    (patient,) = fit(make_job(replace(config, patience=4)))
    assert len(set(patient.n_iterations.tolist())) > 1
    for net in range(6):
        # The first iteration after which four others brought nothing better.
        scores = free.history.score[:, net].tolist()
        best, stop = 0, 60
        for iteration, score in enumerate(scores):
            if score > scores[best]:
                best = iteration
            elif iteration - best == 4:
                stop = iteration
                break
        assert int(patient.n_iterations[net]) == stop
        assert int(patient.best_iteration[net]) == best
        # Whoever left before it, a net goes on as it would have.
        torch.testing.assert_close(
            patient.history.loss[: stop + 1, net],
            free.history.loss[: stop + 1, net],
            rtol=1e-3,
            atol=1e-4,
        )
    assert not patient.diverged.any()
    assert len(patient.history.loss) == int(patient.n_iterations.max()) + 1


def test_patience_longer_than_training_changes_nothing():
    assert_same(fit(make_job(replace(SMALL, patience=50)))[0], fit(make_job())[0], atol=0)


def test_every_net_in_vain_is_one_error_over_all_jobs():
    job = make_job()
    broken = replace(job, data=replace(job.data, features=job.data.features * 1e25))
    with pytest.raises(DivergenceError, match="none of 12 net"):
        fit(broken, broken)
    kept, lost = fit(job, broken)
    assert kept.n_nets == 6
    assert lost.n_nets == 0
    assert lost.history.loss.shape[1] == 0


def test_a_net_that_cannot_be_factored_sits_out_and_comes_back():
    config = replace(SMALL, penalty=1.0, width=200, max_iter=6)
    job = make_job(config, n_nets=2)
    trainer = Trainer(job.data, config, job.seeds, "r2", CPU)
    trainer.advance()
    trainer.look()
    trainer.nets.biases[-1][0] = 1e4  # one direction, beside which float32 sees nothing else
    trainer.output.log_penalty[0] = math.log(1e-8)
    while not trainer.is_done:
        trainer.advance()
        trainer.look()
    result = trainer.result()
    assert int(result.n_recoveries[0]) > 0
    assert int(result.n_recoveries[1]) == 0
    assert not result.diverged.any()
    scores = result.history.score[:, 0]
    assert scores.isnan().any()
    assert scores[-1].isfinite()
    assert float(result.history.penalty[-1, 0]) > 1.0


def test_a_net_beyond_help_is_given_up_after_eight_raises(monkeypatch):
    factor_gram = ridge_output.factor_gram

    def never_for_net_0(gram, penalty, out=None):
        factor = factor_gram(gram, penalty, out)
        failed = factor.failed.clone()
        failed[0] |= len(failed) == 2
        return replace(factor, failed=failed)

    monkeypatch.setattr(ridge_output, "factor_gram", never_for_net_0)
    (result,) = fit(make_job(replace(SMALL, max_iter=20), n_nets=2))
    assert result.diverged.tolist() == [True, False]
    assert result.n_iterations.tolist() == [9, 20]  # the ninth failure is the last
    assert result.history.score[1:10, 0].isnan().all()
    assert int(result.best_iteration[0]) == 0


def test_raises_are_counted_in_all_and_in_a_row():
    status = NetStatus.start(2, CPU)
    places = torch.arange(2)
    for n_raises in range(1, 4):
        in_a_row = status.count_raises(places, torch.tensor([1, 0]))
        assert in_a_row.tolist() == [n_raises, 0]
    assert status.count_raises(places, torch.tensor([0, 1])).tolist() == [0, 1]
    assert status.n_recoveries.tolist() == [3, 1]


def test_the_time_of_later_groups_is_kept_for_them(monkeypatch):
    job = make_job(replace(SMALL, max_iter=10**6))
    monkeypatch.setattr(planning, "MOST_ON_CPU", shared_bytes(job, CPU) + 3 * one(job))
    (result,) = fit(job, limit=1.0)
    steps = result.n_iterations
    assert result.n_nets == 6
    assert steps.min() > 0.2 * steps.max()
    assert Deadline(None).part(0.5).limit is None
    assert 4.9 < Deadline(10.0).part(0.5).limit <= 5.0
    later = Deadline(10.0)
    later.start -= 4.0
    assert 2.9 < later.part(0.5).limit <= 3.0  # of what is left, not of all
    later.start -= 100.0
    assert later.part(0.5).limit == 0.0


def test_time_is_shared_out_by_iterations_and_depth():
    cost = net_cost(make_job())
    assert net_cost(make_job(replace(SMALL, max_iter=16))) == pytest.approx(2 * cost)
    assert net_cost(make_job(replace(SMALL, depth=4))) > 1.5 * cost


def test_one_score_for_all_nets_also_when_they_are_divided():
    config = replace(SMALL, task="classification", dither=0.0, loss="released")
    job = make_job(config, n_nets=2)
    labels = job.data.labels.clone()
    labels[job.data.validation_rows[0]] = 1.0  # net 0 has no ROC curve, net 1 may have one
    job = replace(job, data=replace(job.data, labels=labels))
    chosen = jobs_module.choose_score_of(job)
    assert chosen.score_name == "minus squared error"
    assert chosen.part(1, 2).score_name == "minus squared error"
    assert jobs_module.choose_score_of(chosen) is chosen


# ---------------------------------------------------------------------------- precision, CUDA


def test_reduced_precision_trains_nearly_the_same_nets():
    config = replace(SMALL, width=64, max_iter=20)
    (full,), (reduced,) = fit(make_job(config)), fit(make_job(replace(config, precision="reduced")))
    assert not torch.equal(full.history.loss, reduced.history.loss)
    torch.testing.assert_close(full.history.loss, reduced.history.loss, rtol=0.05, atol=0.05)
    assert float((full.score - reduced.score).abs().max()) < 0.1


def test_the_precision_of_the_process_is_set_aside_and_put_back():
    (plain,) = fit(make_job())
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        (same,) = fit(make_job())
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert_same(same, plain, atol=0)


def test_noise_is_drawn_ahead_only_on_cuda_and_by_the_size_of_one_net():
    assert iterations_ahead(CPU, 10) == 1
    assert iterations_ahead(CUDA, 10) == 20
    assert iterations_ahead(CUDA, 2**20) == 4
    assert iterations_ahead(CUDA, 2**30) == 1


@needs_cuda
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"batch_size": 10},
        {"batch_size": 10, "head": "train"},
        {"task": "classification"},
        {"width": 600},
        {"activation": "mish"},
        {"depth": 1},
        {"head": "linear"},
        {"head": "linear", "task": "classification", "batch_size": 10},
    ],
    ids=str,
)
@pytest.mark.parametrize("weighted", [False, True])
def test_cuda_computes_what_the_cpu_computes(change, weighted):
    config = replace(SMALL, **{"max_iter": 25, "dither": 0.0, "structured_noise": 0.0} | change)
    weights = torch.linspace(0.2, 3.0, 400) if weighted else None
    job = make_job(config, n_nets=3, n_rows=400, weights=weights)
    (cpu,), (cuda,) = fit(job), fit(job, device=CUDA)
    torch.testing.assert_close(cuda.history.loss, cpu.history.loss, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(
        cuda.history.penalty, cpu.history.penalty, rtol=1e-2, atol=1e-3, equal_nan=True
    )


@needs_cuda
@pytest.mark.parametrize("head", ["all", "linear"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_cuda_gives_the_same_nets_in_any_grouping(size, head):
    job = make_job(replace(SMALL, max_iter=45, width=64, head=head))
    (together,) = fit(job, device=CUDA)
    for start in range(0, 6, size):
        (part,) = fit(job.part(start, start + size), device=CUDA)
        torch.testing.assert_close(
            part.validation_output,
            together.validation_output[start : start + size],
            rtol=1e-3,
            atol=1e-4,
        )


@needs_cuda
@pytest.mark.parametrize("head", ["all", "linear"])
def test_cuda_stops_nets_as_the_cpu_does(head):
    config = replace(SMALL, max_iter=100, dither=0.0, structured_noise=0.0, learning_rate=0.05)
    job = make_job(replace(config, patience=4, head=head))
    (cpu,), (cuda,) = fit(job), fit(job, device=CUDA)
    assert cuda.n_iterations.tolist() == cpu.n_iterations.tolist()
    assert cuda.best_iteration.tolist() == cpu.best_iteration.tolist()


@needs_cuda
@pytest.mark.parametrize("head", ["all", "linear"])
def test_a_recorded_iteration_never_waits_for_the_device(head):
    job = make_job(replace(SMALL, max_iter=60, head=head))
    trainer = Trainer(job.data, job.config, job.seeds, "r2", CUDA)
    trainer.advance()
    trainer.look()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a prototype, it says
        torch.cuda.set_sync_debug_mode("error")  # raises where the host would wait
    try:
        trainer.advance()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    trainer.look()
    assert trainer.iteration == 40


@needs_cuda
@pytest.mark.parametrize("head", ["all", "linear"])
def test_cuda_memory_goes_back_and_stays_within_the_plan(head):
    job = make_job(replace(SMALL, width=512, head=head), n_rows=600)
    fit(job, device=CUDA)
    gc.collect()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    fit(job, device=CUDA)
    gc.collect()
    assert torch.cuda.memory_allocated() <= before
    reserved = torch.cuda.memory_reserved()
    fit(job, device=CUDA)
    assert torch.cuda.memory_reserved() <= reserved
    planned = shared_bytes(job, CUDA) + 6 * bytes_per_net(job, CUDA)
    assert torch.cuda.max_memory_allocated() - before <= planned


@needs_cuda
def test_cuda_that_runs_out_of_memory_halves_the_group():
    job = make_job(replace(SMALL, width=1024, max_iter=25), n_rows=600)
    (free,) = fit(job, device=CUDA)
    gc.collect()
    torch.cuda.empty_cache()
    _, total = torch.cuda.mem_get_info()
    most = torch.cuda.memory_allocated() + 4 * bytes_per_net(job, CUDA)
    torch.cuda.set_per_process_memory_fraction(most / total)
    watcher = Watcher()
    try:
        (halved,) = fit(job, device=CUDA, reporter=watcher)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert any("ran out" in said for said in watcher.said)
    torch.testing.assert_close(
        halved.validation_output, free.validation_output, rtol=1e-3, atol=1e-4
    )
