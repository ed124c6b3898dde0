"""A model leaves a device and comes back: the same tensors with the same values, and nothing of it stays there.

Copies play the device. Its own memory is measured where there is one (`make gpu`).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainer.step.state.residence import Residence


class Model(nn.Module):
    """A frozen layer with a tied weight and a buffer, and a trained one."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen, self.tied, self.trained = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False), nn.Linear(4, 2)
        self.frozen.weight.requires_grad = False
        self.tied.weight = self.frozen.weight
        self.scale: Tensor
        self.register_buffer("scale", torch.tensor(2.0), persistent=False)
        self.also_scale = self.scale  # as transformers keeps the first frequencies of RoPE

    def forward(self, inputs: Tensor) -> Tensor:
        output: Tensor = self.trained(self.tied(self.frozen(inputs)) * self.scale)
        return output


def test_what_is_trained_on_the_device_is_kept_and_what_is_frozen_is_not_copied_back() -> None:
    torch.manual_seed(0)
    model, inputs = Model(), torch.randn(3, 4)
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], fused=True)
    on_device: list[Tensor] = []

    def to_device(tensor: Tensor) -> Tensor:
        on_device.append(tensor.clone())
        return on_device[-1]

    def state() -> list[Tensor]:
        return [value for of in optimizer.state.values() for value in of.values() if isinstance(value, Tensor)]

    residence = Residence(model, to_device, state)
    plain = model(inputs).detach().clone()
    residence.leave()
    home = model.frozen.weight.data_ptr()
    for _ in range(2):
        residence.enter()
        assert model.frozen.weight.data_ptr() != home
        assert model.tied.weight is model.frozen.weight
        assert model.also_scale.data_ptr() == model.scale.data_ptr() != 0
        model(inputs).square().sum().backward()
        optimizer.step()
        trained = model(inputs).detach().clone()
        moments = [one.clone() for one in state()]
        residence.leave()
        assert model.frozen.weight.data_ptr() == home  # of frozen weights there is one copy in host memory for ever
        assert torch.equal(model(inputs), trained)
        assert not torch.equal(trained, plain)
        assert len(moments) == 6
        assert all(torch.equal(*pair) for pair in zip(state(), moments, strict=True))
        assert all(one.grad is None for one in model.parameters())
