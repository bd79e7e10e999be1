"""All parameters as one vector, and back."""

from collections.abc import Iterable
from typing import Any

from ddpflow.autograd.base import wrap
from ddpflow.autograd.ops.joining import cat
from ddpflow.autograd.tensor import Tensor
from ddpflow.errors import DtypeError, ShapeError

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def parameters_to_vector(parameters: Iterable[Tensor]) -> Any:
    """The parameters one after another in one vector; gradients flow back."""
    return cat([parameter.reshape(-1) for parameter in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Give parameters the values of a vector, one after another; they share its memory afterwards.

    Args:
        vec: A vector with as many elements as all parameters.
        parameters: The parameters.

    Raises:
        DtypeError: When ``vec`` is not a tensor.
        ShapeError: When it is too short.
    """
    if not isinstance(vec, Tensor):
        raise DtypeError(f"vector_to_parameters() takes a tensor, not {type(vec).__name__}")
    start = 0
    for parameter in parameters:
        end = start + parameter.numel()
        if end > vec.numel():
            raise ShapeError(
                f"a vector of shape {tuple(vec.shape)} has too few elements: parameters need {end} or more"
            )
        parameter.data = wrap(vec.array[start:end].reshape(parameter.array.shape))
        start = end
