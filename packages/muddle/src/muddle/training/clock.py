"""A time limit for a whole training: iterations stop early enough to leave time for the heads.

The speed is measured on the first penalties and the first iteration. Operations count as in
float64, which first penalties and heads are computed in; an operation in float32 counts half.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from muddle.core.penalty import Look, count_grid_operations, ignore, penalty_grid
from muddle.errors import TimeLimitError
from muddle.training.data import TrainJob
from muddle.training.stopping import Deadline
from muddle.training.trainer import count_forward, count_solve, solves_head_to_score

# A fit may take this much longer than its limit.
TOLERANCE = 1.1
# Before all parts are measured, the training counts as too long only if half of the limit is over
# and the rest would be too short at twice the speed measured.
SURE = 0.5
# Seconds per operation of the slowest machine. Small nets take longer, but not for what counts as
# operations here, and the first ones of a process are no measure of those that follow.
SLOWEST = 2e-9


@dataclass(frozen=True)
class Operations:
    """Floating-point operations of nets, up to a factor."""

    start: float = 0.0  # the grid of first penalties
    iteration: float = 0.0
    steps: float = 0.0  # all iterations
    heads: float = 0.0

    @property
    def least(self) -> float:
        """A training cannot do with less than one iteration."""
        return self.start + self.iteration + self.heads


Sizes = Sequence[tuple[TrainJob, int]]  # jobs, and how many of their nets


def count_operations(sizes: Sizes) -> Operations:
    start = iteration = steps = heads = 0.0
    for job, n_nets in sizes:
        config, data, width = job.config, job.data, job.config.width
        n_batch, n_rows, n_train = job.n_batch_rows, data.n_rows, data.n_train
        n_validation, ridge = data.validation_rows.shape[1], config.head != "linear"
        forward = count_forward(config, data.n_features)
        own = n_batch * 3 * forward + n_validation * forward + ridge * count_solve(n_batch, width)
        if solves_head_to_score(data, config):
            own += n_train * forward + count_solve(n_train, width)
        iteration += n_nets * own / 2
        steps += n_nets * own / 2 * config.steps
        if ridge and isinstance(config.penalty, str):
            n_columns = (1 + config.n_permuted) * data.labels.shape[1]
            gram, point = count_grid_operations(n_batch, width, n_columns)
            start += n_nets * (gram + len(penalty_grid(config.penalty)) * point)
        own = n_validation * forward  # their output
        if config.head in ("all", "train"):
            own += n_train * forward + count_solve(n_train, width)
        if config.head == "all":
            # The dual begins anew; the primal goes on with the sums of the training rows.
            n_more = n_rows if n_train <= width else n_rows - n_train
            own += n_more * (forward + min(n_rows, width) * width / 2) + min(n_rows, width) ** 3 / 3
        heads += n_nets * own
    return Operations(start, iteration, steps, heads)


class Clock:
    """The time of nets that are trained side by side; that of their heads comes after."""

    def __init__(self, own: Deadline, whole: Deadline | None) -> None:
        """It is an error if `whole` is over before the first iteration."""
        self._own, self._whole = own, whole

    def watch_grid(self, job: TrainJob) -> Look:
        """Looks at the clock while first penalties of these nets are found."""
        return ignore

    def note_first(self, n_iterations: int) -> None:
        """Check the time after the first iterations."""
        if self._whole is not None:
            self._whole.check_first_iteration()

    def goes_on(self, seconds: float) -> bool:
        """Whether there is time for more iterations, which take `seconds`."""
        return not self._own.is_over()


class WholeClock(Clock):
    """The time of nets and of their heads, with other nets to follow."""

    def __init__(
        self, deadline: Deadline, mine: Operations, others: Operations, must: bool
    ) -> None:
        """must: whether it is an error if the time is too short"""
        assert deadline.limit is not None
        self._deadline, self._limit, self._must = deadline, deadline.limit, must
        self._mine, self._others = mine, others
        self._before = deadline.elapsed()
        self._started = 0.0  # operations of finished grids
        self._stop = 0.0  # of iterations, in seconds since the start of the fit
        self._check(0.0, 0.0)

    def watch_grid(self, job: TrainJob) -> Look:
        start, began = count_operations([(job, job.n_nets)]).start, 0.0

        def look(share: float) -> None:
            nonlocal began
            elapsed = self._deadline.elapsed()
            if share == 0:
                began = elapsed
                return
            rate = min(SLOWEST, (elapsed - began) / (share * start))
            done = self._started + share * start
            if elapsed > SURE * self._limit:
                self._check(rate, SURE * (self._mine.least + self._others.least - done))
            if share == 1:
                self._started += start

        return look

    def note_first(self, n_iterations: int) -> None:
        elapsed, mine, others = self._deadline.elapsed(), self._mine, self._others
        done = mine.start + n_iterations * mine.iteration
        rate = min(SLOWEST, (elapsed - self._before) / done)
        needed = mine.heads + others.least
        self._check(rate, needed)
        spare = self._limit - elapsed - rate * needed
        self._stop = elapsed + spare * mine.steps / (mine.steps + others.steps)

    def goes_on(self, seconds: float) -> bool:
        return self._deadline.elapsed() + seconds <= self._stop

    def _check(self, rate: float, n_operations: float) -> None:
        """An error if there is no time for this many more operations."""
        needed = self._deadline.elapsed() + rate * n_operations
        if not self._must or needed <= TOLERANCE * self._limit:
            return
        names = ("first penalties", "one iteration", "output layers")
        counts = ((o.start, o.iteration, o.heads) for o in (self._mine, self._others))
        seconds = [rate * sum(pair) for pair in zip(*counts, strict=True)]
        parts = [f"{self._before:.2g} s for reading the table"]
        if rate > 0:
            parts += [f"about {s:.2g} s for {n}" for n, s in zip(names, seconds, strict=True)]
        raise TimeLimitError(
            f"time_limit={self._limit} s is too short: {', '.join(parts)}. Raise time_limit beyond "
            f"{max(self._before + sum(seconds), needed):.2g} s, or lower the number of nets, width "
            "or batch_size, or pass fewer rows."
        )


def make_clock(
    deadline: Deadline, own: Sizes, later: Sizes, *, must: bool, with_heads: bool
) -> Clock:
    """The clock of nets trained side by side, with others to follow. must: whether it is an error
    if the time is too short for them; with_heads: whether the deadline is for their heads, too"""
    mine, others = count_operations(own), count_operations(later)
    if with_heads and deadline.limit is not None:
        return WholeClock(deadline, mine, others, must)
    part = deadline.part(mine.steps / (mine.steps + others.steps)) if others.steps else deadline
    return Clock(part, deadline if must else None)
