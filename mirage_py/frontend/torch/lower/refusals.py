"""Operators that cannot be part of a program, with the reason and a way out of each."""

from __future__ import annotations

from typing import NamedTuple

from mirage_py.frontend.torch.capture.recurrences import RECURRENT, REPAIR, TOO_LONG


class Refusal(NamedTuple):
    """Why an operator is not supported and what to do instead."""

    why: str
    repair: str


_SCATTERS = Refusal(
    "it reads or writes at positions that are data, in a way that is no view of its operands",
    "do it outside, and pass its result as an argument",
)
_SELECTS = Refusal(
    "its result depends on the order of the values",
    "leave this step to torch, outside the function",
)
_SLIDES = Refusal(
    "sliding windows over data are not among the operators of a program",
    "leave the layer to torch; a 1x1 or non-overlapping one can be written as reshape and matmul",
)
_SCANS = Refusal(
    "each element depends on the one before it",
    "use cumsum, or leave it to torch",
)
_RANDOM = Refusal(
    "a program has no random numbers",
    "draw them outside, and pass them as an argument",
)
_DATA = Refusal(
    "what happens next depends on the value of a tensor",
    "choose with torch.where, or decide outside and pass a Python value",
)
_SHAPE = Refusal(
    "the shape of its result depends on values",
    "keep the shape, and use a mask with torch.where instead",
)
_COMPLEX = Refusal(
    "complex numbers are not supported",
    "use the real form: rotary embeddings with cos and sin as two real tensors",
)
_LINEAR_ALGEBRA = Refusal(
    "factorisations and solvers are not among the operators of a program",
    "leave this step to torch, outside the function",
)
_PERIODIC = Refusal(
    "this trigonometric function is not among the operators of a program",
    "write it with atan, or compute it outside and pass it as an argument",
)
_TRAINS = Refusal(
    "batch statistics are state that the function changes",
    "call the module in eval mode, or fold its scale and shift into the weights",
)
_RECURRENT = Refusal(TOO_LONG, REPAIR)
_RESAMPLES = Refusal(
    "its positions are between elements, found from rounded quotients",
    "use mode='nearest' with a whole scale factor, or leave this step to torch",
)
# Of handlers that take some of an operator's integers.
INTEGER_BITS = Refusal(
    "kernels compute integers as float32, which have no bits to work on",
    "leave this step to torch, outside the function",
)
_LAYOUT = Refusal(
    "data in a program are dense tensors of real numbers",
    "convert outside the function",
)
_RESAMPLING = (
    "upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d",
    "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "grid_sampler_2d", "grid_sampler_3d",
)  # fmt: skip

REFUSALS: dict[str, Refusal] = {
    **dict.fromkeys(("take", "index_reduce"), _SCATTERS),
    **dict.fromkeys(("median", "mode"), _SELECTS),
    **dict.fromkeys(("unique_dim",), _SELECTS),
    **dict.fromkeys(("im2col", "fractional_max_pool2d"), _SLIDES),
    **dict.fromkeys(("cummax", "cummin"), _SCANS),
    **dict.fromkeys(("rand", "randn", "rand_like", "randn_like", "randint"), _RANDOM),
    **dict.fromkeys(("bernoulli", "multinomial", "normal", "native_dropout"), _RANDOM),
    **dict.fromkeys(("item", "_local_scalar_dense", "_assert_async"), _DATA),
    **dict.fromkeys(("nonzero", "_unique", "_unique2"), _SHAPE),
    **dict.fromkeys(("fft_fft", "fft_rfft", "fft_ifft", "stft"), _COMPLEX),
    **dict.fromkeys(("inverse", "linalg_inv", "linalg_solve", "cholesky"), _LINEAR_ALGEBRA),
    **dict.fromkeys(("linalg_qr", "linalg_svd", "linalg_eigh", "linalg_det"), _LINEAR_ALGEBRA),
    **dict.fromkeys(("atan2",), _PERIODIC),
    **dict.fromkeys(RECURRENT, _RECURRENT),
    **dict.fromkeys(_RESAMPLING, _RESAMPLES),
    **dict.fromkeys(("_to_sparse", "quantize_per_tensor", "quantize_per_channel"), _LAYOUT),
    "native_batch_norm": _TRAINS,
}

_UNKNOWN = Refusal(
    "no handler turns it into operators of a program",
    "write it with supported operators (docs/reference/torch.md lists them), "
    "or leave this part to torch",
)


def refusal(operator: str) -> Refusal:
    """The reason and the way out for an operator as torch prints it (``aten.sort.default``)."""
    return REFUSALS.get(base_name(operator), _UNKNOWN)


def base_name(operator: str) -> str:
    """``aten.sort.default`` -> ``sort``."""
    parts = operator.split(".")
    return parts[1] if len(parts) > 1 else operator


def is_refused(operator: str) -> bool:
    """Whether the operator stays whole so that the error names what the user wrote."""
    name = base_name(operator)
    return name in REFUSALS and name not in RECURRENT
