"""A stand-in for a GPU: tensors of another device, with their values on the CPU; it notes what the host waits for.

Everything runs on it to the end, backward passes and host loops too, and gives the numbers of the CPU. `FakeTensorMode`
has no values, so that whatever reads one ends there; and where torch is built for the CPU alone, a gradient on its
"cuda" aborts the process.
"""

from collections import Counter
from contextlib import ExitStack
from operator import attrgetter
from typing import Any, Self

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.library import _scoped_library
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map_only

aten = torch.ops.aten
GPU = torch.device("lazy", 0)  # besides the CPU and meta the one kind that every build of torch can differentiate on
COPIES = (aten._to_copy.default, aten.copy_.default)
INDEXING = (aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_, aten._unsafe_index)
READS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
TO_HOST, FROM_HOST = "copy to the host", "copy from the host"


class OnGpu(Tensor):
    """A tensor on the stand-in."""

    values: Tensor

    @staticmethod
    def __new__(cls, values: Tensor) -> Self:
        layout: dict[str, Any] = {"strides": values.stride(), "storage_offset": values.storage_offset()}
        return Tensor._make_wrapper_subclass(cls, values.shape, dtype=values.dtype, device=GPU, **layout)

    def __init__(self, values: Tensor) -> None:
        self.values = values

    def tolist(self) -> Any:
        return self.cpu().tolist()

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, function: OpOverload, *_: object) -> Any:
        raise AssertionError(f"{function} of a tensor on the stand-in, outside of it")


class StandIn(TorchDispatchMode):
    """While it lasts, tensors can be made on `GPU`, and moved to it and back.

    Attributes:
        waits: How often each operation made the host wait for the device: it read values, or copied them between the
            two without saying non_blocking.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self.stack = ExitStack()
        lift_on_cpu, swap = torch._C._only_lift_cpu_tensors(), torch.__future__.get_swap_module_params_on_conversion()
        self.stack.callback(torch._C._set_only_lift_cpu_tensors, lift_on_cpu)
        self.stack.callback(torch.__future__.set_swap_module_params_on_conversion, swap)
        torch._C._set_only_lift_cpu_tensors(True)  # a tensor of numbers is made on the CPU, then moved
        torch.__future__.set_swap_module_params_on_conversion(True)  # an optimizer keeps its parameters
        self.stack.enter_context(_scoped_library("aten", "IMPL")).impl("one_hot", one_hot, "AutogradLazy")
        return super().__enter__()

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        self.stack.close()

    def __torch_dispatch__(
        self, function: OpOverload, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        with self:
            found = function.decompose(*args, **kwargs)
        if found is not NotImplemented:
            return found
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        takes_here = any(isinstance(tensor, OnGpu) for tensor in tensors)
        if kwargs.get("device") is not None:
            makes_here = torch.device(kwargs["device"]).type == GPU.type
        else:
            makes_here = isinstance(args[0], OnGpu) if function is aten.copy_.default else takes_here
        if function in COPIES:
            source = args[0] if function is aten._to_copy.default else args[1]
            self._note_copy(isinstance(source, OnGpu), makes_here, kwargs.get("non_blocking") or args[2:] == (True,))
        elif takes_here:
            self._note_operation(function, args, tensors)
        if makes_here and "device" in kwargs:
            kwargs["device"] = torch.device("cpu")
        inner_args, inner_kwargs = tree_map_only(OnGpu, attrgetter("values"), (args, kwargs))
        found = function(*inner_args, **inner_kwargs)
        if not makes_here:
            return found
        return return_and_correct_aliasing(function, args, kwargs, tree_map_only(Tensor, OnGpu, found))

    def _note_copy(self, from_here: bool, to_here: bool, non_blocking: bool) -> None:
        if from_here and not to_here:
            self.waits[TO_HOST] += 1
        elif to_here and not from_here and not non_blocking:
            self.waits[FROM_HOST] += 1

    def _note_operation(self, function: OpOverload, args: tuple[Any, ...], tensors: list[Tensor]) -> None:
        """Note a wait. Raises: RuntimeError where tensors are on two devices, as for those of CUDA."""
        indices = [index for index in args[1] if index is not None] if function.overloadpacket in INDEXING else []
        if any(not isinstance(index, OnGpu) for index in indices):
            self.waits[FROM_HOST] += 1
        operands = [tensor for tensor in tensors if not any(tensor is index for index in indices)]
        if any(tensor.ndim > 0 and not isinstance(tensor, OnGpu) for tensor in operands):  # one number may be anywhere
            raise RuntimeError(f"Expected all tensors to be on the same device, but {function} got some on the CPU")
        is_mask = any(index.dtype in (torch.bool, torch.uint8) for index in indices)
        if is_mask if indices else READS & set(function.tags):
            self.waits[function.overloadpacket.__name__] += 1


def one_hot(labels: Tensor, n_classes: int) -> Tensor:
    """As torch computes it on CUDA; on other devices it first reads the least and the greatest label."""
    return labels.new_zeros(*labels.shape, n_classes).scatter_(-1, labels.unsqueeze(-1), 1)


def values_on(device: torch.device, tensor: Tensor) -> Tensor:
    """The values of a tensor, which must be on this device."""
    assert tensor.device == device
    return tensor.values if isinstance(tensor, OnGpu) else tensor
