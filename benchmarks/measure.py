"""What the benchmarks have in common: seconds of a call, and a row of the table."""

from collections.abc import Callable

from torch.utils.benchmark import Timer


def seconds(function: Callable, *arguments) -> float:
    """The fastest of as many calls as a second holds, which other programs disturbed least.

    A call that takes longer is made twice, once to warm up. All on one thread: two that wait for
    each other measure the other programs.
    """
    names = {"function": function, "arguments": arguments}
    timer = Timer("function(*arguments)", globals=names, num_threads=1)
    return min(timer.blocked_autorange(min_run_time=1).times)


def row(what: str, ours: float, other: float | None, wanted: str, memory=(None, None)) -> dict:
    """The ratio of two times from one run says more than seconds, and is what is promised."""
    return {
        "what": what,
        "ours, s": ours,
        "other, s": other,
        "other / ours": None if other is None else other / ours,
        "wanted": wanted,
        "ours, MB": memory[0],
        "other, MB": memory[1],
    }
