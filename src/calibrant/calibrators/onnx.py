"""Modules as ONNX files: one graph, inputs of float32, any number of rows, the same bytes from every export."""

import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from calibrant._files import atomic_write, check_output
from calibrant.errors import MissingExtraError

KIND = "an ONNX file of calibrant"
PRODUCER = "calibrant"  # by which `KIND` is recognized


def write_onnx(
    path: str | os.PathLike[str],
    module: nn.Module,
    inputs: Mapping[str, Tensor],
    output: str,
    metadata: Mapping[str, str],
) -> None:
    """Write a module as an ONNX file, atomically.

    Args:
        path: The file to write.
        module: It maps tensors of rows along dim 0 to one tensor of rows.
        inputs: An example of each input, by the name in the graph, of the same number of rows.
        output: The name of the output.
        metadata: What the file says of itself.

    Raises:
        InvalidInputError: There is a file of another kind.
        MissingExtraError: The extra onnx is not installed.
        ResourceError: The file cannot be written.
    """
    check_output(path, KIND)
    try:
        import onnx
        import onnxscript  # noqa: F401  # what torch exports with
    except ImportError:
        raise MissingExtraError("exporting to ONNX", "onnx") from None
    with _quiet_exporter():
        program = torch.onnx.export(
            module.eval(),
            tuple(inputs.values()),
            input_names=list(inputs),
            output_names=[output],
            dynamic_shapes=({0: torch.export.Dim("batch")},) * len(inputs),
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    assert program is not None
    model = program.model_proto
    _forget_origin(model)
    onnx.helper.set_model_props(model, dict(metadata))
    onnx.checker.check_model(model)
    with atomic_write(path, KIND) as file:
        file.write(model.SerializeToString(deterministic=True))


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Without what torch says of its own parts, and of packages that it misses."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _forget_origin(model: Any) -> None:
    """Remove the stack traces, which name folders of this machine, and inferred shapes, which a runtime infers too."""
    from calibrant import __version__

    model.producer_name, model.producer_version = PRODUCER, __version__
    graph = model.graph
    del graph.value_info[:]
    for part in (graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        del part.metadata_props[:]
