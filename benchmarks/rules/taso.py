"""TASO's rule file: a protocol buffer of rules, each two lists of operators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.rules.foreign import Foreign, applied, convolution, given, piece

# Numbers of operators and of parameters in its protocol.
_CONV, _RELU, _CONCAT, _SPLIT, _ADD, _MUL, _MATMUL = 3, 8, 12, 13, 16, 17, 18
_STRIDES, _PAD, _ACTIVATION, _AXIS = (6, 7), 8, 9, 11
Operator = tuple[int, list[tuple[int, int]], dict[int, int]]


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value - (1 << 64) * (value >> 63), at


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        key, at = _number(data, at)
        value, at = _number(data, at)
        if key & 7 == 2:
            yield key >> 3, data[at : at + value]
            at += value
        elif key & 7 == 0:
            yield key >> 3, value
        else:
            raise ValueError("a field that its protocol does not have")


def _numbers(data: int | bytes) -> Mapping[int, int]:
    assert isinstance(data, bytes)
    return {key: value for key, value in _fields(data) if isinstance(value, int)}


def _operator(data: int | bytes) -> Operator:
    assert isinstance(data, bytes)
    kind, operands, parameters = 0, list[tuple[int, int]](), dict[int, int]()
    for key, value in _fields(data):
        if isinstance(value, int):
            kind = value
        else:
            numbers = _numbers(value)
            if key == 2:
                operands.append((numbers[1], numbers[2]))
            else:
                parameters[numbers[1]] = numbers[2]
    return kind, operands, parameters


def read(path: Path) -> list[Foreign]:
    """The rules of a file."""
    found = []
    for number, (_, data) in enumerate(_fields(path.read_bytes())):
        sides: tuple[list[Operator], list[Operator]] = ([], [])
        outputs = []
        assert isinstance(data, bytes)
        for key, value in _fields(data):
            if key in (1, 2):
                sides[key - 1].append(_operator(value))
            else:
                numbers = _numbers(value)
                outputs.append([(numbers[1], numbers[3]), (numbers[2], numbers[4])])
        made = [_graph(side, [ends[n] for ends in outputs]) for n, side in enumerate(sides)]
        found.append(Foreign(f"taso {number}", *made))
    return found


def _graph(side: Sequence[Operator], outputs: Sequence[tuple[int, int]]) -> tuple[object, ...]:
    made: dict[tuple[int, int], object] = {}

    def value(end: tuple[int, int]) -> object:
        return made[end] if end in made else given(f"i{-end[0]}")

    for number, (kind, operands, parameters) in enumerate(side):
        of = [value(end) for end in operands]
        match kind:
            case 3:
                fits = all(parameters[n] == 1 for n in _STRIDES) and parameters[_PAD] == 0
                made[number, 0] = convolution(*of, relu=parameters[_ACTIVATION] == 2, unit=fits)
            case 8:
                made[number, 0] = applied("relu", *of)
            case 12:
                made[number, 0] = applied("concat", *of, attrs=(parameters[_AXIS],))
            case 13:
                for n in (0, 1):
                    made[number, n] = piece(parameters[_AXIS], n, of[0])
            case _:
                name = {_ADD: "add", _MUL: "mul", _MATMUL: "matmul"}[kind]
                made[number, 0] = applied(name, *of)
    return tuple(made[end] for end in outputs)
