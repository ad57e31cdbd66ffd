"""Where the tensors of a block pass in a forward pass, and which of several passes is meant."""

from collections.abc import Iterator
from itertools import count, product

from torch import Tensor

from helpers import anatomy

Seen = dict[anatomy.Tap, list[tuple[int, Tensor]]]  # when a tensor passed, and a copy of it


def taps(part: anatomy.Anatomy) -> set[anatomy.Tap]:
    """The places in the network where this block's tensors pass."""
    norms = [norm for norm in (part.inner_norm, part.norm, part.second_norm) if norm is not None]
    around = {*product(norms, ("input", "output")), part.after} - {None}
    made = {(part.x[0], "output"), (part.project, "output")}
    if part.parallel:
        made |= {(part.layer, "output"), (part.layer.mlp, "output")}
    return {part.x, part.residual, part.output, *made, *around}


def listen(tap: anatomy.Tap, seen: Seen, clock: count):
    """Hook one place of the network; `seen` gets a copy of each tensor that passes: (T, D)."""
    module, side = tap

    def keep(tensor: Tensor) -> None:
        # A batch of one, or no batch axis.
        seen[tap].append((next(clock), tensor.detach().flatten(0, -2).clone()))

    def keep_input(_module, args, kwargs):
        keep(args[0] if args else kwargs["hidden_states"])

    def keep_output(_module, _args, result):
        keep(result[0] if isinstance(result, tuple) else result)

    if side == "input":
        return module.register_forward_pre_hook(keep_input, with_kwargs=True)
    return module.register_forward_hook(keep_output)


def of_each(parts: list[anatomy.Anatomy], seen: Seen) -> Iterator[dict[str, Tensor | None]]:
    """For each block, by name, all tensors that it has; None for what did not pass.

    A module can serve several layers, or several places in one. The order of the passes tells them
    apart: what attention reads comes before its values are made, and all else after its projection.
    """
    for number, part in enumerate(parts):
        projection = _turn(parts, number, seen)
        x, values = (
            projection and _last(seen[part.x[0], side], projection[0])
            for side in ("input", "output")
        )
        found = {"x": x, "values": values, "projection": projection}
        found["residual"] = x and _last(seen[part.residual], x[0])
        if part.inner_norm is not None:
            found["inner norm"] = _next(seen[part.inner_norm, "output"], projection)
        norm = None
        if part.norm is not None:
            found["before norm"] = _next(seen[part.norm, "input"], projection)
            norm = found["norm"] = _next(seen[part.norm, "output"], found["before norm"])
            if part.after is not None:
                found["after"] = _next(seen[part.after], norm)
        if part.second_norm is not None:
            before = found["before second norm"] = _next(seen[part.second_norm, "input"], norm)
            found["second norm"] = _next(seen[part.second_norm, "output"], before)
        if part.parallel:
            found["mlp"] = _next(seen[part.layer.mlp, "output"], projection)
            found["layer"] = _next(seen[part.layer, "output"], projection)
        found["output"] = norm or _next(seen[part.output], projection)
        yield {name: event and event[1] for name, event in found.items()}


def _turn(parts: list[anatomy.Anatomy], number: int, seen: Seen):
    """The pass of a layer's projection; layers that share it take turns."""
    module = parts[number].project
    events = seen[module, "output"]
    turn = [part.project for part in parts[:number]].count(module)
    return events[turn] if turn < len(events) else None


def _next(events: list[tuple[int, Tensor]], after: tuple[int, Tensor] | None):
    """The first pass after another one."""
    return after and next((event for event in events if event[0] > after[0]), None)


def _last(events: list[tuple[int, Tensor]], before: int):
    """The last pass before a moment."""
    return next((event for event in reversed(events) if event[0] < before), None)
