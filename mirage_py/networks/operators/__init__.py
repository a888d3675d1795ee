"""The operators of networks, each defined once. Import names from here."""

from __future__ import annotations

from mirage_py.networks.operators import (
    convolutions,
    elementwise,
    layout,
    normalisation,
    opaque,
    overwrite,
    pooling,
    products,
    reductions,
)
from mirage_py.networks.operators.operator import (
    Attribute,
    Attributes,
    AttributeValue,
    Operator,
    all_operators,
    operator,
)
from mirage_py.networks.operators.tensor_type import TensorType

__all__ = [
    "Attribute",
    "AttributeValue",
    "Attributes",
    "Operator",
    "TensorType",
    "all_operators",
    "convolutions",
    "elementwise",
    "layout",
    "normalisation",
    "opaque",
    "operator",
    "overwrite",
    "pooling",
    "products",
    "reductions",
]
