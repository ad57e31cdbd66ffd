"""Ways in which people change a layer: some that its weights still tell, some that they do not."""

import copy

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune
from transformers.pytorch_utils import Conv1D

from helpers import Model, anatomy


class LoRA(nn.Module):
    """A low-rank adapter as peft has it: no Linear itself, and it shows the weight it adapts."""

    def __init__(self, base: nn.Module, b: float, rank: int = 2):
        super().__init__()
        self.lora_A = nn.Linear(base.weight.shape[isinstance(base, nn.Linear)], rank, bias=False)
        self.lora_B = nn.Linear(rank, base.weight.shape[isinstance(base, Conv1D)], bias=False)
        nn.init.normal_(self.lora_A.weight)
        nn.init.normal_(self.lora_B.weight, std=b) if b else nn.init.zeros_(self.lora_B.weight)
        self.base_layer = base

    weight = property(lambda self: self.base_layer.weight)
    bias = property(lambda self: self.base_layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.base_layer(x) + self.lora_B(self.lora_A(x))


class Doubled(nn.Module):
    """A wrapper that does more than what is inside it."""

    def __init__(self, inside: nn.Module):
        super().__init__()
        self.inside = inside

    def forward(self, x: Tensor) -> Tensor:
        return 2 * self.inside(x)


class Plain(Doubled):
    """A wrapper that does nothing."""

    def forward(self, x: Tensor) -> Tensor:
        return self.inside(x)


class Thinned(nn.Module):
    """A parametrisation: every second column of a weight is half as large."""

    def forward(self, weight: Tensor) -> Tensor:
        return weight * (1 - 0.5 * (torch.arange(weight.shape[1]) % 2))


def exchange(network: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Put a module in the place, or the places, of another."""
    places = [(m, name) for m in network.modules() for name, c in m.named_children() if c is old]
    assert places
    for module, name in places:
        setattr(module, name, new)


def parent(network: nn.Module, module: nn.Module) -> nn.Module:
    """The module that holds another."""
    return next(m for m in network.modules() if any(c is module for c in m.children()))


def changed_output(net: nn.Module, module: nn.Module) -> None:
    """Hook a module of the network, so that what it returns is something else."""
    module.register_forward_hook(lambda *call: longer(call[-1]))


def longer(output):
    """What a module returns, its states moved by a fixed vector."""
    states, *rest = output if isinstance(output, tuple) else (output,)
    states = states + torch.linspace(0, 1, states.shape[-1])
    return (states, *rest) if isinstance(output, tuple) else states


def _other_forward(module: nn.Module) -> None:
    old = module.forward
    module.forward = lambda x: 1.1 * old(x)


# Each takes a network and one part of its anatomy. After these the weights no longer tell.
HIDDEN = {
    "LoRA, values": lambda net, part: exchange(net, part.x[0], LoRA(part.x[0], 0.3)),
    "LoRA, projection": lambda net, part: exchange(net, part.project, LoRA(part.project, 0.3)),
    "wrapper, values": lambda net, part: exchange(net, part.x[0], Doubled(part.x[0])),
    "wrapper, projection": lambda net, part: exchange(net, part.project, Doubled(part.project)),
    "hook, values": lambda net, part: changed_output(net, part.x[0]),
    "hook, projection": lambda net, part: changed_output(net, part.project),
    "hook, contexts": lambda net, part: part.project.register_forward_pre_hook(
        lambda _, args: (longer(args[0]),)
    ),
    "hook, attention": lambda net, part: changed_output(net, parent(net, part.project)),
    "another forward": lambda net, part: _other_forward(part.project),
    "hook, LayerNorm": lambda net, part: changed_output(net, part.norm),
    "hook, last LayerNorm": lambda net, part: changed_output(net, part.second_norm),
    "hook, RMSNorm after attention": lambda net, part: changed_output(net, part.inner_norm),
    "RMSNorm for LayerNorm": lambda net, part: exchange(
        net, part.norm, nn.RMSNorm(part.norm.normalized_shape)
    ),
    "wrapper, LayerNorm": lambda net, part: exchange(net, part.norm, Doubled(part.norm)),
}
NEEDS = {  # what a block must have for a change to be possible
    "hook, LayerNorm": "norm",
    "hook, last LayerNorm": "second_norm",
    "hook, RMSNorm after attention": "inner_norm",
    "RMSNorm for LayerNorm": "norm",
    "wrapper, LayerNorm": "norm",
}
# After these they do.
SHOWN = {
    "LoRA, B = 0": lambda net, part: [
        exchange(net, module, LoRA(module, 0)) for module in (part.x[0], part.project)
    ],
    "plain wrapper": lambda net, part: [
        exchange(net, module, Plain(module)) for module in (part.x[0], part.project)
    ],
    "parametrisation": lambda net, part: [
        parametrize.register_parametrization(module, "weight", Thinned())
        for module in (part.x[0], part.project)
    ],
    "pruning": lambda net, part: [
        prune.l1_unstructured(module, "weight", amount=0.4) for module in (part.x[0], part.project)
    ],
}

BEFORE = {  # what the values read is changed
    "hook, what values read": lambda net, part: part.x[0].register_forward_pre_hook(
        lambda _, args: (longer(args[0]),)
    )
}


def change(model: Model, kind: str, number: int = 1, attention=None) -> Model | None:
    """A copy of a model with one layer changed; None where it has no such place."""
    network = copy.deepcopy(model.network)
    part = anatomy.blocks(network, attention)[number]
    if kind in NEEDS and getattr(part, NEEDS[kind]) is None:
        return None
    torch.manual_seed(0)
    (HIDDEN | SHOWN | BEFORE)[kind](network, part)
    return Model(network.eval(), model.tokenizer, model.name)
