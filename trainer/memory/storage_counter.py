"""Count the bytes of live tensors, and the floating-point operations, while code runs on fake tensors.

Owns: the dispatch mode, phases, and answers to code that reads a fake tensor's value. Refuses: what runs under it
(`trainer.memory.step_memory`).

A storage counts from the operation that makes it until nothing holds it, as in a GPU's caching allocator. What a kernel
allocates for itself is not seen. Storages of the host are counted apart.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

_aten = torch.ops.aten
_DEVICE = torch.ops.prim.device.default
# PyTorch counts the attention kernels of GPUs alone. A causal kernel computes half of the scores.
_FORWARD = _aten._scaled_dot_product_flash_attention_for_cpu
_BACKWARD = _aten._scaled_dot_product_flash_attention_for_cpu_backward


class StorageCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within: counts storages that operations make. Enter it inside of a `FakeTensorMode`.

    `phase` is the name under which the peak is kept; set it at any time. The value of a fake tensor reads as 1 (true),
    and a boolean mask as all true: a trainer's step reads values only for its metrics and checks.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.phase = ""
        self.live = 0
        self.host_live = 0
        self.host_peak = 0
        self.flops = 0
        self.peaks: dict[str, int] = {}
        self._is_host = False
        self._references: dict[int, weakref.ref[Any]] = {}

    def hold(self, tensors: Iterable[Tensor]) -> None:
        """Count tensors that were made before, as long as they live."""
        for tensor in tensors:
            self._add(tensor)

    @contextmanager
    def on_host(self) -> Iterator[None]:
        """Within: what operations make is in host memory."""
        self._is_host = True
        try:
            yield
        finally:
            self._is_host = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run one operation, and count what it makes."""
        if func is _DEVICE and isinstance(args[0], FakeTensor) and not args[0].fake_mode.in_kernel_invocation:
            return args[0].fake_device  # asked twice for each operation: the way through the dispatcher is long
        if func is _aten._local_scalar_dense.default:
            return True if args[0].dtype == torch.bool else 1
        if func is _aten.index.Tensor and any(one is not None and one.dtype == torch.bool for one in args[1]):
            return args[0].clone()
        result = func(*args, **(kwargs or {}))
        self.flops += _flops(func, args, kwargs or {}, result)
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._add(leaf)
        return result

    def _add(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = id(storage), storage.nbytes()
        if key in self._references:
            return

        on_host = self._is_host

        def drop(_: object) -> None:
            self._change(-size, on_host)
            del self._references[key]

        self._references[key] = weakref.ref(storage, drop)
        self._change(size, on_host)
        self.peaks[self.phase] = max(self.peaks.get(self.phase, 0), self.live)

    def _change(self, size: int, on_host: bool) -> None:
        if on_host:
            self.host_live += size
            self.host_peak = max(self.host_peak, self.host_live)
        else:
            self.live += size


def _flops(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> int:
    packet = func._overloadpacket
    if packet is _FORWARD:
        query, key, value = args[:3]
        causal = (len(args) > 4 and args[4]) or kwargs.get("is_causal", False)
        return int(sdpa_flop_count(query.shape, key.shape, value.shape)) // (2 if causal else 1)  # type: ignore[no-untyped-call]
    if packet is _BACKWARD:
        grad, query, key, value = args[:4]
        causal = (len(args) > 7 and args[7]) or kwargs.get("is_causal", False)
        return int(sdpa_backward_flop_count(grad.shape, query.shape, key.shape, value.shape)) // (2 if causal else 1)  # type: ignore[no-untyped-call]
    count = flop_registry.get(packet)
    return int(count(*args, **kwargs, out_val=result)) if count is not None else 0
