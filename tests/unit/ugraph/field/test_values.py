from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from mirage_py.ugraph.field import FieldArray, concatenate


def counting(*shape: int, q: bool = True) -> FieldArray:
    numbers = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    return FieldArray(numbers, numbers + 100 if q else None)


def parts(value: FieldArray) -> list[np.ndarray]:
    assert value.q is not None
    return [value.p, value.q]


def test_shapes() -> None:
    value = counting(2, 3)
    assert (value.shape, value.ndim, value.size) == ((2, 3), 2, 6)


def test_parts_of_different_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(2, 3\), the q part \(3, 2\)"):
        FieldArray(np.zeros((2, 3), np.int64), np.zeros((3, 2), np.int64))


def test_is_frozen_and_compared_by_identity() -> None:
    value = counting(2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.p = value.p  # type: ignore[misc]
    assert value == value
    assert value != counting(2)


def test_views_act_on_both_parts() -> None:
    value = counting(2, 3, 4)
    for changed, expected in [
        (value.reshape((6, -1)), [part.reshape(6, 4) for part in parts(value)]),
        (value.transpose(), [part.T for part in parts(value)]),
        (value.transpose((1, 0, 2)), [part.swapaxes(0, 1) for part in parts(value)]),
        (value.broadcast((5, 2, 3, 4)), [np.stack([part] * 5) for part in parts(value)]),
        (value.repeat(2, axis=1), [np.repeat(part, 2, 1) for part in parts(value)]),
        (value[1], [part[1] for part in parts(value)]),
        (value[..., 1:3], [part[..., 1:3] for part in parts(value)]),
        (value[:, None], [part[:, None] for part in parts(value)]),
        (value[0, 1, 2], [part[0, 1, 2] for part in parts(value)]),
        (value[np.array([1, 0])], [part[::-1] for part in parts(value)]),
    ]:
        assert changed.shape == expected[0].shape
        for part, wanted in zip(parts(changed), expected, strict=True):
            assert isinstance(part, np.ndarray)
            np.testing.assert_array_equal(part, wanted)


def test_views_of_a_value_without_q_part() -> None:
    value = counting(2, 3, q=False)
    for changed in (
        value.reshape((3, 2)),
        value.transpose(),
        value.broadcast((4, 2, 3)),
        value.repeat(3, 0),
        value[0],
    ):
        assert changed.q is None


def test_concatenate() -> None:
    joined = concatenate([counting(2, 3), counting(1, 3)], axis=0)
    assert joined.shape == (3, 3)
    assert joined.q is not None
    assert joined.q[2].tolist() == [100, 101, 102]
    assert concatenate([counting(2, 3), counting(2, 1, q=False)], axis=1).q is None


class TestFingerprint:
    def test_depends_on_the_elements_and_not_on_the_memory(self) -> None:
        value = counting(3, 4)
        assert value.fingerprint() == counting(3, 4).fingerprint()
        assert value.transpose().transpose().fingerprint() == value.fingerprint()
        turned = FieldArray(*(np.ascontiguousarray(part.T) for part in parts(value)))
        assert turned.fingerprint() == value.transpose().fingerprint()

    def test_tells_shape_parts_and_elements_apart(self) -> None:
        numbers = np.arange(12)
        values = [
            FieldArray(numbers, numbers),
            FieldArray(numbers, None),
            FieldArray(numbers, numbers[::-1]),
            FieldArray(numbers[::-1], numbers),
            FieldArray(numbers.reshape(3, 4), numbers.reshape(3, 4)),
            FieldArray(numbers.reshape(4, 3), numbers.reshape(4, 3)),
            FieldArray(numbers.reshape(12, 1), numbers.reshape(12, 1)),
            FieldArray(numbers[:6], numbers[6:]),
            FieldArray(numbers[:0], numbers[:0]),
            FieldArray(numbers[:0], None),
            FieldArray(np.array(7), np.array(7)),
        ]
        assert len({value.fingerprint() for value in values}) == len(values)
