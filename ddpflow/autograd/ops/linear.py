"""The affine map of a layer, and its bilinear relative."""

import math

from ddpflow.autograd.kernels.matmul import column_sums, matmul_transposed, product
from ddpflow.autograd.op import op
from ddpflow.autograd.ops.dims import need_one_dtype
from ddpflow.errors import ShapeError

__all__ = ["bilinear", "linear"]


@op(
    samples=[((5, 4), (3, 4), (3,)), ((2, 3, 4), (5, 4), (5,)), ((2, 4), (3, 4)), ((4,), (3, 4), (3,)), ((2, 4), (4,))],
    tensors=3,
    into=1,
)
def linear(xp, input, weight, bias=None):
    """Affine map of the last axis: ``input @ weight.T + bias``; any leading axes (PyTorch's ``F.linear``).

    Args:
        input: Shape ``(*, in_features)``.
        weight: Shape ``(out_features, in_features)``, or ``(in_features,)``.
        bias: Shape ``(out_features,)``, or None.

    Raises:
        ShapeError: When the last axis of the input is not the weight's.
        MixedDtypeError: When the dtypes differ.
    """
    if input.dtype is not weight.dtype:
        need_one_dtype("linear", input, weight)
    features = weight.shape[-1]
    if not input.ndim or input.shape[-1] != features:
        raise ShapeError(
            f"linear(): an input of shape {tuple(input.shape)} does not fit a weight of shape {tuple(weight.shape)}: "
            f"its last axis must have {features} elements"
        )
    if input.ndim == 2 and weight.ndim == 2:
        out = matmul_transposed(xp, input, weight, bias)
        return out, (
            lambda g: product(g, weight),
            lambda g, out=None: product(g.T, input, out),
            lambda g: column_sums(g),
        )
    if weight.ndim == 1 or input.ndim == 1:
        out = input @ weight.T
        out = out if bias is None else out + bias
        if weight.ndim == 1:
            return out, (lambda g: g[..., None] * weight, lambda g, out=None: g[..., None] * input, lambda g: g)
        return out, (lambda g: g @ weight, lambda g, out=None: g[:, None] * input, lambda g: g)
    lead = input.shape[:-1]
    rows, width = math.prod(lead), weight.shape[0]
    out = matmul_transposed(xp, input.reshape(rows, features), weight, bias)
    return out.reshape(*lead, width), (
        lambda g: (g.reshape(rows, width) @ weight).reshape(*lead, features),
        lambda g, out=None: product(g.reshape(rows, width).T, input.reshape(rows, features), out),
        lambda g: column_sums(g.reshape(rows, width)),
    )


def bilinear(input1, input2, weight, bias=None):
    """``y[..., o] = sum_ij input1[..., i] * weight[o, i, j] * input2[..., j] + bias[o]`` (PyTorch's ``F.bilinear``).

    Raises:
        ShapeError: When the last axes are not the weight's, or the leading axes differ.
    """
    out_features, in1, in2 = weight.shape
    if input1.shape[-1] != in1 or input2.shape[-1] != in2 or input1.shape[:-1] != input2.shape[:-1]:
        raise ShapeError(
            f"bilinear(): inputs of shapes {tuple(input1.shape)} and {tuple(input2.shape)} do not fit a weight of "
            f"shape {tuple(weight.shape)}"
        )
    lead = tuple(input1.shape[:-1])
    rows1, rows2 = input1.reshape(-1, in1), input2.reshape(-1, in2)
    # (rows, in1) @ (in1, out * in2) gives for each row and output a vector over in2
    mixed = (rows1 @ weight.permute(1, 0, 2).reshape(in1, out_features * in2)).reshape(-1, out_features, in2)
    out = (mixed * rows2.reshape(-1, 1, in2)).sum(-1).reshape(*lead, out_features)
    return out if bias is None else out + bias
