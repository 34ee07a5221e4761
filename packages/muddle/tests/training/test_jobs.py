"""Many nets in one call: groups, memory, workers, CUDA."""

import gc
import math
import pickle
import time
import warnings
import weakref
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace

import joblib
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from muddle.core.device import torch_threads
from muddle.errors import DivergenceError, NotEnoughMemoryError, TimeLimitError, WorkerError
from muddle.training import jobs as jobs_module
from muddle.training.jobs import (
    CPU_WORKSPACE,
    USABLE,
    Share,
    SharedReporter,
    Silent,
    bytes_per_net,
    count_workers,
    divide_jobs,
    fix_score,
    is_out_of_memory,
    plan_waves,
    run_worker,
    shared_bytes,
    train_in_parallel,
)
from muddle.training.stopping import Deadline
from muddle.training.trainer import Trainer, iterations_ahead

CPU = torch.device("cpu")
CUDA = torch.device("cuda")
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def assert_same(ours, theirs, rtol=1e-4, atol=1e-5):
    assert ours.kept == theirs.kept
    assert torch.equal(ours.best_iteration, theirs.best_iteration)
    assert torch.equal(ours.n_iterations, theirs.n_iterations)
    near = {"rtol": rtol, "atol": atol, "equal_nan": True}
    for name in ("head", "validation_output", "score", "penalty"):
        torch.testing.assert_close(getattr(ours, name), getattr(theirs, name), **near)
    for name in ("loss", "score", "penalty"):
        mine, other = getattr(ours.history, name), getattr(theirs.history, name)
        torch.testing.assert_close(mine, other, **near)


class Watcher:
    """A reporter that remembers."""

    def __init__(self):
        self.steps, self.said = [], []

    def advance(self, n_net_iterations, loss, score):
        assert math.isfinite(loss)
        assert math.isfinite(score)
        self.steps.append(n_net_iterations)

    def say(self, text):
        self.said.append(text)


@pytest.mark.parametrize("change", [{}, {"batch_size": 10}, {"head": "linear"}], ids=str)
@pytest.mark.parametrize(("size", "largest"), [(1, 1), (2, 2), (4, 3)])
def test_groups_give_the_same_nets(change, size, largest, make_job, small, train, limit_group):
    job = make_job(replace(small, **change), n_nets=6)
    (together,) = train(job)
    limit_group(job, size)
    watcher = Watcher()
    (grouped,) = train(job, reporter=watcher)
    assert f"in groups of {largest}," in watcher.said[0]
    assert sum(watcher.steps) == 6 * 9
    assert_same(grouped, together)


@pytest.mark.parametrize("n_threads", [2, 3, 4])
def test_threads_divide_the_nets_and_give_the_same_ones(n_threads, make_job, small, train):
    jobs = [make_job(small, n_nets=3), make_job(replace(small, depth=1, max_iter=12), n_nets=3)]
    together, watcher = train(*jobs), Watcher()
    with torch_threads(n_threads):
        divided = train(*jobs, reporter=watcher)
        assert torch.get_num_threads() == n_threads
    for ours, theirs in zip(divided, together, strict=True):
        assert_same(ours, theirs)
    assert sum(watcher.steps) == 3 * 9 + 3 * 13


@pytest.mark.parametrize(
    ("n_nets", "n_threads", "n_workers"),
    [(1, 8, 1), (20, 2, 2), (3, 2, 1), (5, 2, 1), (15, 2, 2), (10, 16, 5), (20, 16, 4), (4, 1, 1)],
)
def test_threads_divide_nets_where_all_get_about_as_many(n_nets, n_threads, n_workers):
    assert count_workers(n_nets, n_threads) == n_workers


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("error", [KeyboardInterrupt, NotEnoughMemoryError])
def test_an_error_in_one_thread_ends_the_others(error, place, make_job, small, train, monkeypatch):
    trained, iterations = jobs_module._train_wave, []

    def fail_in_one(jobs, device, clock, reporter):
        if jobs[0].seeds[0] == job.seeds[place]:
            raise error("in one thread")
        return trained(jobs, device, clock, Watching(reporter))

    class Watching(Silent):
        def __init__(self, reporter):
            self.reporter = reporter

        def advance(self, n_net_iterations, loss, score):
            iterations.append(n_net_iterations)
            self.reporter.advance(n_net_iterations, loss, score)
            time.sleep(0.002)

    job = make_job(replace(small, max_iter=10_000, patience=10_000), n_nets=2)
    monkeypatch.setattr(jobs_module, "_train_wave", fail_in_one)
    with torch_threads(2), pytest.raises(error, match="in one thread"):
        train(job)
    assert len(iterations) < 1_000


def test_several_threads_say_the_same_text_once():
    watcher = Watcher()
    shared = SharedReporter(watcher)
    for text in ("groups of 3", "groups of 3", "groups of 2"):
        shared.say(text)
    assert watcher.said == ["groups of 3", "groups of 2"]


def test_jobs_side_by_side_equal_each_alone(make_job, small, train):
    jobs = [make_job(small), make_job(replace(small, depth=1, max_iter=12), n_nets=2)]
    for beside, job in zip(train(*jobs), jobs, strict=True):
        assert_same(beside, train(job)[0])


def test_a_lost_net_leaves_the_others_their_places(make_job, small, train, limit_group, poison):
    job = make_job(replace(small, head="train"), n_nets=4)
    limit_group(job, 2)
    (result,) = train(replace(job, data=poison(job.data, 0)))
    assert result.kept == [1, 2, 3]


def test_every_net_in_vain_is_one_error_over_all_jobs(make_job, small, train):
    job = make_job(small)
    broken = replace(job, data=replace(job.data, features=job.data.features * 1e25))
    with pytest.raises(DivergenceError, match="none of 6 net"):
        train(broken, broken)
    kept, lost = train(job, broken)
    assert (kept.n_nets, lost.n_nets, lost.history.loss.shape[1]) == (3, 0, 0)


def test_nets_without_a_roc_curve_give_all_nets_another_score(make_job, small, train):
    config = replace(small, task="classification", dither=0.0)
    job, other = make_job(config), make_job(config)
    labels = job.data.labels.clone()
    labels[job.data.validation_rows[0]] = 1.0  # net 0 has no ROC curve, the others may have one
    job = fix_score(replace(job, data=replace(job.data, labels=labels)))
    assert job.score_name == job.part(1, 2).score_name == "minus squared error"
    assert fix_score(other).score_name == "auc"
    assert [result.score_name for result in train(job, other)] == ["minus squared error"] * 2


def test_the_time_of_later_groups_is_kept_for_them(make_job, small, train, limit_group):
    train(make_job(small))  # loads everything
    job = make_job(replace(small, max_iter=10**5), n_nets=6)
    limit_group(job, 3)
    (result,) = train(job, deadline=Deadline(1.0))
    steps = result.n_iterations
    assert result.n_nets == 6
    assert steps.min() > 0.2 * steps.max()


@pytest.fixture
def give_memory(monkeypatch):
    def give(n_bytes):
        monkeypatch.setattr(jobs_module, "available_memory", lambda _: n_bytes)

    return give


@pytest.mark.parametrize(("n_fit", "sizes"), [(6, [6]), (5, [3, 3]), (4, [3, 3]), (2, [2, 2, 2])])
def test_nets_are_divided_among_as_few_groups_as_fit(n_fit, sizes, make_job, small, give_memory):
    job = make_job(small, n_nets=6)
    budget = shared_bytes(job, CPU) + n_fit * bytes_per_net(job, CPU)
    for share in (1.0, 0.5):
        give_memory(math.ceil(budget / USABLE / share))
        waves = plan_waves([job], CPU, share)
        assert [share.n_nets for (share,) in waves] == sizes
        assert [share.start for (share,) in waves] == [sum(sizes[:i]) for i in range(len(sizes))]
    give_memory(None)
    assert len(plan_waves([job], CPU)) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 4096}, r"rows at a time needs .* GiB of memory on cpu.*Lower width or batch_s"),
        ({"n_permutations": 4096, "width": 8}, "Lower n_permutations or"),
    ],
)
def test_a_net_that_cannot_fit_is_refused(change, message, make_job, small, train, give_memory):
    give_memory(2**20)
    with pytest.raises(NotEnoughMemoryError, match=message):
        train(make_job(replace(small, **change), n_rows=600))


def test_cuda_runs_jobs_side_by_side_if_they_fit(make_job, small, give_memory):
    jobs = [make_job(small), make_job(replace(small, depth=1))]
    give_memory(2**40)
    assert plan_waves(jobs, CUDA) == [(Share(0, 0, 3), Share(1, 0, 3))]
    assert plan_waves(jobs, CPU) == [(Share(0, 0, 3),), (Share(1, 0, 3),)]
    give_memory(sum(shared_bytes(job, CUDA) + 3 * bytes_per_net(job, CUDA) for job in jobs))
    assert all(len(wave) == 1 for wave in plan_waves(jobs, CUDA))


class Storages(TorchDispatchMode):
    """Counts the bytes of all tensors that are alive, and the most that ever were."""

    def __init__(self):
        super().__init__()
        self.alive, self.most, self._known = 0, 0, set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, torch.Tensor):
                self._count(tensor.untyped_storage())
        return out

    def _count(self, storage):
        key, size = storage._cdata, storage.nbytes()
        if key not in self._known:
            self._known.add(key)
            self.alive += size
            self.most = max(self.most, self.alive)
            weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key, size):
        self._known.discard(key)
        self.alive -= size


CHANGES = [
    *({"scale_rate": 0.0}, {"keep": "best"}, {"keep": "last"}, {"activation": "mish"}),
    *({"depth": 1}, {"depth": 3, "width": 64}, {"batch_size": 50}, {"precision": "reduced"}),
    *({}, {"keep": "best", "head": "linear"}),
]
TABLES = [
    {"n_rows": 200, "weighted": True},
    {"n_rows": 200, "n_features": 60, "own_tables": True},
    {"n_rows": 800, "n_features": 100},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
@pytest.mark.parametrize("table", TABLES, ids=str)
def test_no_more_memory_is_used_than_planned(change, table, make_job, cycles, train):
    job = make_job(replace(cycles, **{"max_iter": 5, "width": 48} | change), n_nets=6, **table)
    with Storages() as storages:
        train(job)
    # Libraries' workspaces are not tensors, and far larger than these nets.
    planned = shared_bytes(job, CPU) - CPU_WORKSPACE + 6 * bytes_per_net(job, CPU)
    assert planned / 5 < storages.most <= planned  # the count sees what there is


@pytest.fixture
def short_of_memory(monkeypatch):
    """Trainers of more than this many nets fail at their third iteration, as a device would."""

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
def test_out_of_memory_halves_the_group(error, make_job, small, train, short_of_memory):
    job = make_job(small, n_nets=6)
    (free,) = train(job)
    short_of_memory(2, error)
    watcher = Watcher()
    (halved,) = train(job, reporter=watcher)
    assert_same(halved, free)
    assert len(watcher.said) == 3  # six nets, then twice three of them
    assert "cpu ran out of memory with 6 nets side by side" in watcher.said[0]


@pytest.mark.parametrize(
    ("error", "expected", "message"),
    [
        (MemoryError(), NotEnoughMemoryError, "one net of depth 2 and width 24"),
        (RuntimeError("mat1 and mat2 shapes"), RuntimeError, "shapes"),
    ],
)
def test_errors_that_stay(error, expected, message, make_job, small, train, short_of_memory):
    short_of_memory(0, error)
    with pytest.raises(expected, match=message):
        train(make_job(small))
    assert not is_out_of_memory(NotEnoughMemoryError("refused by the plan"))


def test_nothing_of_a_fit_stays_in_memory(make_job, small, train):
    counts = []
    for _ in range(2):
        train(make_job(small))
        gc.collect()
        counts.append(sum(1 for kept in gc.get_objects() if type(kept) is Trainer))
    assert counts[0] == counts[1]


@pytest.fixture
def train_parallel():
    def run(jobs, n_jobs=2, deadline=None, reporter=None):
        options = {"n_jobs": n_jobs, "device": CPU, "deadline": deadline or Deadline(None)}
        with joblib.parallel_config(backend="threading"):
            return train_in_parallel(jobs, reporter=reporter, **options)

    return run


@pytest.mark.parametrize("n_workers", range(1, 9))
@pytest.mark.parametrize("sizes", [(10,), (10, 10), (1, 1), (3, 1, 2), (5, 4)])
def test_workers_have_equal_shares_of_every_job(sizes, n_workers, make_job, small):
    jobs = [make_job(small, n_nets=size) for size in sizes]
    shares = divide_jobs(jobs, min(n_workers, sum(sizes)))
    for index, job in enumerate(jobs):
        parts = [share.take(jobs).seeds for own in shares for share in own if share.job == index]
        assert sum(parts, ()) == job.seeds
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
    loads = [sum(share.n_nets for share in own) for own in shares]
    assert 1 <= max(loads) <= min(loads) + 1


@pytest.mark.parametrize("n_jobs", [2, 3, 7])
def test_workers_give_the_nets_of_one_process(n_jobs, make_job, small, train, train_parallel):
    jobs = [make_job(small, n_nets=4), make_job(replace(small, depth=1))]
    watcher = Watcher()
    results = train_parallel(jobs, n_jobs, reporter=watcher)
    for one, other in zip(pickle.loads(pickle.dumps(results)), train(*jobs), strict=True):
        assert_same(one, other)  # results travel by pickle
    assert len(watcher.steps) == n_jobs
    assert sum(watcher.steps) == 7 * 9  # nets times iterations
    assert watcher.said == [f"7 nets are trained by {n_jobs} workers in parallel."]


def test_threads_and_memory_are_divided_among_workers_and_given_back(monkeypatch):
    seen = []

    def note(_jobs, _device, _deadline, _reporter, memory_share, with_heads):
        assert with_heads
        seen.append((torch.get_num_threads(), memory_share))
        torch.set_num_threads(3)
        return []

    monkeypatch.setattr(jobs_module, "_train", note)
    monkeypatch.setattr(joblib, "cpu_count", lambda: 8)
    for n_own, n_workers in ((6, 4), (1, 4), (6, 50)):
        with torch_threads(n_own):
            run_worker(0, [], "cpu", Deadline(None), n_workers)
            assert torch.get_num_threads() == n_own
    # Two of eight cores each; never more than the process was given; at least one.
    assert seen == [(2, 0.25), (1, 0.25), (1, 0.02)]


def test_the_time_limit_holds_in_workers(make_job, small, train, train_parallel):
    train(make_job(small))  # loads everything
    jobs = [make_job(replace(small, depth=d, max_iter=10**5), n_nets=2) for d in (1, 2)]
    results = train_parallel(jobs, deadline=Deadline(1.0))
    assert [result.n_nets for result in results] == [2, 2]
    assert all((result.n_iterations < 10**5).all() for result in results)
    late = Deadline(5.0)
    late.start -= 100.0
    with pytest.raises(TimeLimitError, match=r"time_limit=5\.0 s is too short: 1e\+02 s for rea"):
        train_parallel(jobs, deadline=late)


def test_nets_survive_a_share_that_diverged(make_job, small, train, train_parallel, poison):
    config = replace(small, head="train")
    jobs = [make_job(config, n_nets=4), make_job(replace(config, depth=1), n_nets=1)]
    assert [len(own) for own in divide_jobs(jobs, 2)] == [2, 1]
    (whole,) = train(jobs[0])
    data = poison(poison(jobs[0].data, 0), 1)
    lost = replace(jobs[1], data=poison(jobs[1].data, 0))
    first, second = train_parallel([replace(jobs[0], data=data), lost], reporter=None)
    assert first.kept == [2, 3]
    torch.testing.assert_close(first.head, whole.head[2:], atol=1e-5, rtol=1e-4)
    assert (second.kept, second.nets.n_nets, second.head.shape) == ([], 0, (0, 24, 1))
    with pytest.raises(DivergenceError, match="none of 2 net"):
        train_parallel([lost, lost])


class KilledWorker(Exception):
    """As Dask's is called."""


LOST = (WorkerError, r"one of 2 workers ended.*Lower n_jobs")


@pytest.mark.parametrize(
    ("error", "expected", "message"),
    [
        (BrokenProcessPool("gone"), *LOST),
        (KilledWorker("gone"), *LOST),
        (ZeroDivisionError("mine"), ZeroDivisionError, "mine"),
        (KeyboardInterrupt("stop"), KeyboardInterrupt, "stop"),
    ],
)
def test_lost_workers(error, expected, message, make_job, small, train_parallel, monkeypatch):
    def fail(*_args):
        raise error

    monkeypatch.setattr(jobs_module, "run_worker", fail)
    with pytest.raises(expected, match=message):
        train_parallel([make_job(small)])


def test_noise_is_drawn_ahead_only_on_cuda_and_by_the_size_of_one_net():
    assert iterations_ahead(CPU, 10) == 1
    assert iterations_ahead(CUDA, 10) == 20
    assert iterations_ahead(CUDA, 2**20) == 4
    assert iterations_ahead(CUDA, 2**30) == 1


ON_CUDA = [
    *({}, {"batch_size": 10}, {"batch_size": 10, "head": "train"}, {"task": "classification"}),
    *({"width": 600}, {"activation": "mish"}, {"depth": 1}, {"head": "linear"}),
    {"head": "linear", "task": "classification", "batch_size": 10},
]


@needs_cuda
@pytest.mark.parametrize("change", ON_CUDA, ids=str)
@pytest.mark.parametrize("weighted", [False, True])
def test_cuda_computes_what_the_cpu_computes(change, weighted, make_job, small, train):
    config = replace(small, **{"max_iter": 25, "dither": 0.0, "structured_noise": 0.0} | change)
    job = make_job(config, n_rows=400, weighted=weighted)
    (cpu,), (cuda,) = train(job), train(job, device=CUDA)
    torch.testing.assert_close(cuda.history.loss, cpu.history.loss, rtol=1e-3, atol=1e-4)
    near = {"rtol": 1e-2, "atol": 1e-3, "equal_nan": True}
    torch.testing.assert_close(cuda.history.penalty, cpu.history.penalty, **near)


@needs_cuda
@pytest.mark.parametrize("head", ["all", "linear"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_cuda_gives_the_same_nets_in_any_grouping(size, head, make_job, small, train):
    job = make_job(replace(small, max_iter=45, width=64, head=head), n_nets=6)
    (together,) = train(job, device=CUDA)
    for start in range(0, 6, size):
        (part,) = train(job.part(start, start + size), device=CUDA)
        expected = together.validation_output[start : start + size]
        torch.testing.assert_close(part.validation_output, expected, rtol=1e-3, atol=1e-4)


@needs_cuda
@pytest.mark.parametrize("head", ["all", "linear"])
def test_cuda_stops_nets_as_the_cpu_does(head, make_job, small, train):
    config = replace(small, max_iter=100, dither=0.0, structured_noise=0.0, learning_rate=0.05)
    job = make_job(replace(config, patience=4, head=head), n_nets=6)
    (cpu,), (cuda,) = train(job), train(job, device=CUDA)
    assert cuda.n_iterations.tolist() == cpu.n_iterations.tolist()
    assert cuda.best_iteration.tolist() == cpu.best_iteration.tolist()


@needs_cuda
@pytest.mark.parametrize("head", ["all", "linear"])
def test_a_recorded_iteration_never_waits_for_the_device(head, make_data, make_trainer, small):
    trainer = make_trainer(make_data(), replace(small, max_iter=60, head=head), CUDA)
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
def test_cuda_memory_goes_back_and_stays_within_the_plan(head, make_job, small, train):
    job = make_job(replace(small, width=512, head=head), n_nets=6, n_rows=600)
    train(job, device=CUDA)
    gc.collect()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    train(job, device=CUDA)
    gc.collect()
    assert torch.cuda.memory_allocated() <= before
    reserved = torch.cuda.memory_reserved()
    train(job, device=CUDA)
    assert torch.cuda.memory_reserved() <= reserved
    planned = shared_bytes(job, CUDA) + 6 * bytes_per_net(job, CUDA)
    assert torch.cuda.max_memory_allocated() - before <= planned


@needs_cuda
def test_cuda_that_runs_out_of_memory_halves_the_group(make_job, small, train):
    job = make_job(replace(small, width=1024, max_iter=25), n_nets=6, n_rows=600)
    (free,) = train(job, device=CUDA)
    gc.collect()
    torch.cuda.empty_cache()
    _, total = torch.cuda.mem_get_info()
    most = torch.cuda.memory_allocated() + 4 * bytes_per_net(job, CUDA)
    torch.cuda.set_per_process_memory_fraction(most / total)
    watcher = Watcher()
    try:
        (halved,) = train(job, device=CUDA, reporter=watcher)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert any("ran out" in said for said in watcher.said)
    near = {"rtol": 1e-3, "atol": 1e-4}
    torch.testing.assert_close(halved.validation_output, free.validation_output, **near)
