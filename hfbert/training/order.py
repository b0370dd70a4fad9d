"""Turn the samples of an epoch into the hands that each process is dealt, one global batch at a time.

global_batch_size 8, micro-batches of 2, 2 processes: samples 0-7 of the epoch's order
->  rank 0: [0, 1] [4, 5]   rank 1: [2, 3] [6, 7]

A pure function of (seed, epoch, place in the epoch), so that a run can go on from any sample.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


def epoch_order(num_samples: int, seed: int, epoch: int) -> Tensor:
    """The order of an epoch's samples, (num_samples,) int64: a function of (seed, epoch)."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    return torch.randperm(num_samples, generator=generator)


def deal(window: Sequence[int], micro: int, num_processes: int) -> list[list[Sequence[int]]]:
    """A global batch as [micro-batch][rank]; only the last one of an epoch has short or empty hands."""
    turns = range(0, len(window), micro * num_processes)
    return [[window[turn + micro * rank :][:micro] for rank in range(num_processes)] for turn in turns]


@dataclass(frozen=True)
class BatchRamp:
    """Samples of each update: from `first` to `last` in even steps over `num_steps`, in multiples of `unit`.

    BatchRamp(64, 256, 100, 64).size(50)  ->  128
    """

    first: int
    last: int
    num_steps: int
    unit: int

    def size(self, step: int) -> int:
        if step >= self.num_steps:
            return self.last
        size = self.first + (self.last - self.first) * step / self.num_steps
        return int(size // self.unit) * self.unit


@dataclass(frozen=True)
class HandBatches:
    """The micro-batches of one rank from a place in an epoch on, as a batch sampler.

    An empty hand is filled with the window's first sample, so that every rank takes part in every turn; the
    loop takes its labels away.
    """

    order: Tensor
    start: int
    step: int  # of the run at that place
    ramp: BatchRamp
    micro: int
    num_processes: int
    rank: int

    def windows(self) -> Iterator[list[int]]:
        start, step = self.start, self.step
        while start < len(self.order):
            size = self.ramp.size(step)
            yield self.order[start : start + size].tolist()
            start, step = start + size, step + 1

    def __iter__(self) -> Iterator[list[int]]:
        for window in self.windows():
            for hands in deal(window, self.micro, self.num_processes):
                yield list(hands[self.rank]) or [window[0]]
