"""The value of a tensor: residues modulo p and, where it has them, modulo q."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Residues: TypeAlias = NDArray[np.int64]
Index: TypeAlias = int | slice | EllipsisType | NDArray[np.int64] | None


@dataclass(frozen=True, slots=True, eq=False)
class FieldArray:
    """A tensor over the field pair, elements in [0, p) and [0, q).

    ``q`` is None where the value has no q part, which is so after an exponential: an exponent is
    known modulo q, its power modulo p only. Both arrays have one shape and are never written to
    once they are in here (they may be views of each other). Compare with ``FieldOps.equal`` or by
    ``fingerprint``; ``==`` is identity.
    """

    p: Residues
    q: Residues | None

    def __post_init__(self) -> None:
        if self.q is not None and self.q.shape != self.p.shape:
            raise ValueError(f"the p part has shape {self.p.shape}, the q part {self.q.shape}")

    @property
    def shape(self) -> tuple[int, ...]:
        return self.p.shape

    @property
    def ndim(self) -> int:
        return self.p.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.p.size

    def reshape(self, shape: Sequence[int]) -> FieldArray:
        """The same elements in row-major order under another shape; one extent may be -1."""
        wanted = tuple(shape)
        return FieldArray(
            self.p.reshape(wanted), None if self.q is None else self.q.reshape(wanted)
        )

    def transpose(self, axes: Sequence[int] | None = None) -> FieldArray:
        """Axis ``i`` of the result is axis ``axes[i]`` of this one; without ``axes``, reversed."""
        order = None if axes is None else tuple(axes)
        return FieldArray(
            self.p.transpose(order), None if self.q is None else self.q.transpose(order)
        )

    def broadcast(self, shape: Sequence[int]) -> FieldArray:
        """A view with extents of 1 and missing leading axes stretched to ``shape``, as in NumPy."""
        wanted = tuple(shape)
        if self.p.shape == wanted and (self.q is None or self.q.shape == wanted):
            return self
        stretched = np.broadcast_to(self.p, wanted)
        return FieldArray(stretched, None if self.q is None else np.broadcast_to(self.q, wanted))

    def repeat(self, count: int, axis: int) -> FieldArray:
        """Each element ``count`` times in a row along ``axis``."""
        repeated = np.repeat(self.p, count, axis)
        return FieldArray(repeated, None if self.q is None else np.repeat(self.q, count, axis))

    def __getitem__(self, index: Index | tuple[Index, ...]) -> FieldArray:
        return FieldArray(
            np.asarray(self.p[index]), None if self.q is None else np.asarray(self.q[index])
        )

    def fingerprint(self) -> bytes:
        """A key two values share exactly when shape, p part and q part (or its lack) are equal.

        8 bytes per element, 4 where there is no q part, after a short header.
        """
        header = b"%d %d %a" % (self.q is not None, self.p.ndim, self.p.shape)
        words = self.p.astype(np.uint32).tobytes()
        if self.q is None:
            return header + words
        return header + words + self.q.astype(np.uint32).tobytes()


def concatenate(parts: Sequence[FieldArray], axis: int) -> FieldArray:
    """The parts one after the other along ``axis``; there is a q part if every part has one."""
    joined = np.concatenate([part.p for part in parts], axis)
    q_parts = [part.q for part in parts if part.q is not None]
    if len(q_parts) < len(parts):
        return FieldArray(joined, None)
    return FieldArray(joined, np.concatenate(q_parts, axis))
