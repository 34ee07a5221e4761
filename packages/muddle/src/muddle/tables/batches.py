"""Batches of features and labels from a stream that was counted: what nets are trained on.

Memory holds a few chunks and a buffer of rows in which they are shuffled. The same seed, epoch and
rank give the same batches.

Shapes: B rows of a batch, F features, C label columns.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from muddle.tables.counting import Counted, HeldOut
from muddle.tables.stream import Chunk, Piece, Stream
from muddle_runtime.columns import FloatArray

Part = Literal["train", "validation", "all"]
Floats = NDArray[np.float32]
Block = tuple[Floats, Floats]  # features and labels of the same rows

BUFFER_BYTES = 2**25  # of the rows that are shuffled together
OPEN_PIECES = 4  # that are read in turn, so that neighbours in a file come apart


class StreamBatches:
    """Rows of a stream as float32 matrices, batch by batch.

    to_labels: targets, as `TargetSums.read` gives them, to labels (N, C)
    """

    def __init__(
        self,
        stream: Stream,
        counted: Counted,
        target: str,
        to_labels: Callable[[NDArray[Any]], FloatArray],
        n_labels: int,
    ) -> None:
        self.stream, self.counted, self.target = stream, counted, target
        self.n_rows = counted.n_rows - counted.n_held_out
        self.n_features, self.n_labels = counted.plan.n_features, n_labels
        self.level_widths = tuple(len(source.names) for source in counted.plan.one_hot)
        self._to_labels = to_labels
        self._names = [*counted.plan.used, target]

    def batches(
        self,
        part: Part,
        *,
        epoch: int = 0,
        seed: int = 0,
        batch_size: int,
        shuffle: bool,
        rank: int = 0,
        n_ranks: int = 1,
        some: HeldOut | None = None,
    ) -> Iterator[tuple[Floats, Floats, Floats | None]]:
        """Features (B, F), labels (B, C) and no weights of the rows of a part; B is batch_size,
        and less only in the last batch. Each rank has the rows of pieces of its own.

        some: these rows alone
        """
        pieces = self.stream.pieces
        by_row = len(pieces) < n_ranks
        own = pieces if by_row else pieces[rank::n_ranks]
        rng = np.random.default_rng([seed, epoch, rank])
        chunks = self._mix(own, rng) if shuffle else self._follow(own)
        blocks = (
            self.read_block(chunk, part, rank=rank, n_ranks=n_ranks if by_row else 1, some=some)
            for chunk in chunks
        )
        n_mixed = 0
        if shuffle:
            width = 4 * (self.n_features + self.n_labels)
            n_mixed = max(2 * batch_size, BUFFER_BYTES // width)
        yield from _cut(blocks, batch_size, n_mixed, rng)

    def read_block(
        self,
        chunk: Chunk,
        part: Part,
        *,
        rank: int = 0,
        n_ranks: int = 1,
        some: HeldOut | None = None,
    ) -> Block:
        """The rows of a part in a chunk."""
        counted, rows = self.counted, chunk.rows
        known, target = counted.target.read(rows[self.target], chunk.title)
        chosen = known
        if part != "all":
            held_out = counted.held_out.find(chunk)
            chosen = chosen & (held_out if part == "validation" else ~held_out)
        if some is not None:
            chosen = chosen & some.find(chunk)
        if n_ranks > 1:
            chosen = chosen & (chunk.hash(0) % np.uint64(n_ranks) == rank)
        folds = counted.folds(chunk)
        if not chosen.all():
            rows, folds, target = rows.filter(chosen), folds[chosen], target[chosen[known]]
        if not len(target):
            none = np.zeros((0, self.n_features), np.float32)
            return none, np.zeros((0, self.n_labels), np.float32)
        table = self.stream.to_table(rows)
        matrix = counted.plan.transform_training(table, counted.crossed.find(folds))
        return matrix.astype(np.float32), self._to_labels(target).astype(np.float32)

    def _follow(self, pieces: Sequence[Piece]) -> Iterator[Chunk]:
        for piece in pieces:
            yield from self.stream.read(piece, self._names)

    def _mix(self, pieces: Sequence[Piece], rng: np.random.Generator) -> Iterator[Chunk]:
        """Chunks of a few pieces at a time, in random order."""
        waiting = [pieces[place] for place in rng.permutation(len(pieces))]
        opened: list[Iterator[Chunk]] = []
        while waiting or opened:
            while waiting and len(opened) < OPEN_PIECES:
                opened.append(self.stream.read(waiting.pop(), self._names))
            place = int(rng.integers(len(opened)))
            chunk = next(opened[place], None)
            if chunk is None:
                opened.pop(place)
            else:
                yield chunk


def _cut(
    blocks: Iterator[Block], batch_size: int, n_mixed: int, rng: np.random.Generator
) -> Iterator[tuple[Floats, Floats, None]]:
    """Batches of equal size; if n_mixed > 0, of rows in random order, so many of them together."""
    n_room, n_held = max(n_mixed, 2 * batch_size), 0
    held: list[Floats] = []  # features and labels, of which the first n_held rows are in use
    for block in blocks:
        held = held or [np.empty((n_room, part.shape[1]), np.float32) for part in block]
        n_taken = 0
        while n_taken < len(block[0]):
            n_more = min(n_room - n_held, len(block[0]) - n_taken)
            for room, part in zip(held, block, strict=True):
                room[n_held : n_held + n_more] = part[n_taken : n_taken + n_more]
            n_taken, n_held = n_taken + n_more, n_held + n_more
            if n_held == n_room:
                # Half of what is mixed stays, and is mixed with what comes next.
                n_given = (n_held - n_mixed // 2) // batch_size * batch_size
                order = rng.permutation(n_held) if n_mixed else np.arange(n_held)
                yield from _give(held, order[:n_given], batch_size)
                n_held -= n_given
                for room in held:
                    room[:n_held] = room[order[n_given:]]
    order = rng.permutation(n_held) if n_mixed else np.arange(n_held)
    yield from _give(held, order, batch_size)


def _give(
    held: Sequence[Floats], order: NDArray[np.int64], batch_size: int
) -> Iterator[tuple[Floats, Floats, None]]:
    for first in range(0, len(order), batch_size):
        rows = order[first : first + batch_size]
        yield held[0][rows], held[1][rows], None
