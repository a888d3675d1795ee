"""Global memory of a launch: what lies where, and whether accesses of all blocks stay inside.

Each tensor has an address range of its own, far from all others, so that an address says whose it
is. Outputs know which thread has written each element.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirage_py.runtime.code_check.events import BOUNDS, OUTPUT, RACE, Fault, Launch, Map, Tensor
from mirage_py.runtime.code_check.ptx.integers import UNKNOWN, Value, signed

_SHIFT = 40
_TABLES = 4096
# Outputs with more elements than this are looked at for bounds alone.
_MOST_ELEMENTS = 1 << 26


class GlobalMemory:
    """Of one launch. ``faults`` are what was found so far."""

    def __init__(self, launch: Launch, parameters: tuple[str, ...]) -> None:
        self.launch = launch
        self.parameters = parameters
        self.faults: list[Fault] = []
        self.unsure: list[str] = []
        self.tensors: dict[int, Tensor] = {}
        self.tables: dict[int, np.ndarray[Any, Any]] = {}
        self.writers: dict[int, np.ndarray[Any, Any]] = {}
        self.may_write: set[int] = set()
        self.accesses = 0
        # Of all accesses in order: two texts that differ here do not touch the same.
        self.digest = 0
        for n, name in enumerate(parameters):
            tensor = launch.tensors.get(name)
            if tensor is None:
                continue
            self.tensors[n + 1] = tensor
            elements = tensor.bytes // tensor.element
            if tensor.is_output and not tensor.adds and elements <= _MOST_ELEMENTS:
                self.writers[n + 1] = np.zeros(elements, np.int32)

    def table(self, name: str, data: bytes) -> int:
        """The address of a constant of the module."""
        key = _TABLES + len(self.tables)
        self.tables[key] = np.frombuffer(data, np.uint8)
        self.tensors[key] = Tensor(name, len(data), 1)
        return key << _SHIFT

    def parameter(self, number: int) -> Value:
        """What a pointer parameter holds."""
        return number + 1 << _SHIFT if number + 1 in self.tensors else UNKNOWN

    def is_early(self, address: Value, mask: Any) -> bool:
        """Whether all of these addresses are of tensors that the kernel in front does not write."""
        numbers = np.unique(self.masked(address, mask) >> _SHIFT)
        found = [self.tensors.get(int(number)) for number in numbers]
        return all(tensor is not None and tensor.early for tensor in found)

    def constant(self, address: Value, size: int) -> Value:
        """What lies in a constant table; UNKNOWN elsewhere."""
        low, high = int(np.min(address)), int(np.max(address))
        table = self.tables.get(low >> _SHIFT)
        if table is None or high >> _SHIFT != low >> _SHIFT:
            return UNKNOWN
        places = np.asarray(address) - (low >> _SHIFT << _SHIFT)
        if int(places.min()) < 0 or int(places.max()) + size > len(table):
            return UNKNOWN
        found = np.zeros(places.shape, np.int64)
        for n in range(size):
            found |= table[places + n].astype(np.int64) << 8 * n
        return int(found) if found.ndim == 0 else found

    def touch(
        self, line: int, address: Value, size: int, mask: Any, *, what: str, may: bool = False
    ) -> int:
        """Check an access of ``size`` bytes by the threads of ``mask``; the number of the tensor, 0
        where it lies in none.
        """
        self.accesses += 1
        inside = self.masked(address, mask)
        self.digest = hash((self.digest, line, size, inside.size, int(inside.sum())))
        if not inside.size:
            return 0
        low, high = int(inside.min()), int(inside.max())
        number = low >> _SHIFT
        tensor = self.tensors.get(number)
        if (
            tensor is None
            or high >> _SHIFT != number
            or high + size > (number << _SHIFT) + tensor.bytes
        ):
            self._outside(line, address, size, mask, what, may)
            return 0
        if int(np.bitwise_or.reduce(inside.ravel())) & (size - 1) and size & (size - 1) == 0:
            self.say(Fault(BOUNDS, line, f"{what} of {size} bytes of {tensor.name} is misaligned"))
        return number

    def store(
        self, line: int, address: Value, size: int, mask: Any, threads: Any, may: bool, adds: bool
    ) -> None:
        """Check a store, and who else has written there. ``threads`` are numbers in the launch."""
        number = self.touch(line, address, size, mask, what="a store", may=may)
        if not number:
            return
        tensor = self.tensors[number]
        if not tensor.is_output:
            self.say(Fault(OUTPUT, line, f"a store to {tensor.name}, which is no output"))
            return
        writers = self.writers.get(number)
        if writers is None or adds:
            return
        if may:
            self.may_write.add(number)
        width = tensor.element
        address, threads, mask = np.broadcast_arrays(np.asarray(address), threads, mask)
        first = (address[mask] - (number << _SHIFT)) // width
        who = threads[mask].astype(np.int32) + 1
        for n in range(-(-size // width)):
            at = first + n
            before = writers[at]
            if ((before != 0) & (before != who)).any():
                self._twice(line, tensor, at[(before != 0) & (before != who)])
                return
            writers[at] = who
            if (writers[at] != who).any():
                self._twice(line, tensor, at[writers[at] != who])
                return

    def _twice(self, line: int, tensor: Tensor, places: Any) -> None:
        text = f"two threads write element {int(places[0])} of {tensor.name}"
        self.say(Fault(RACE, line, text))

    def box(self, line: int, what: Map, coordinates: tuple[Value, ...], mask: Any) -> None:
        """Check a tensor copy: some of its box lies inside along each axis."""
        self.accesses += 1
        if len(coordinates) != len(what.box):
            text = f"a copy of {what.tensor} has {len(coordinates)} axes, its map {len(what.box)}"
            self.say(Fault(BOUNDS, line, text))
            return
        for axis, value in enumerate(coordinates):
            if value is UNKNOWN:
                self.unsure.append(f"line {line}: a coordinate of {what.tensor} depends on data")
                continue
            at = self.masked(signed(value, 32), mask)
            if not at.size:
                continue
            if int(at.min()) + what.box[axis] <= 0 or int(at.max()) >= what.shape[axis]:
                worst = int(at.min()) if int(at.min()) < 0 else int(at.max())
                text = (
                    f"a copy of {what.tensor} begins at {worst} of axis {axis}, which has "
                    f"{what.shape[axis]} places"
                )
                self.say(Fault(BOUNDS, line, text))

    def unwritten(self) -> list[Fault]:
        """Outputs of which some element was written by nobody."""
        found = []
        for number, writers in self.writers.items():
            missing = int(writers.size - np.count_nonzero(writers))
            if missing and number not in self.may_write:
                name = self.tensors[number].name
                found.append(
                    Fault(OUTPUT, 0, f"{missing} elements of {name} are written by nobody")
                )
        return found

    def masked(self, address: Value, mask: Any) -> Any:
        if not isinstance(address, np.ndarray):
            return np.full(1, address, np.int64)
        shape = np.broadcast_shapes(address.shape, mask.shape)
        if mask.all():
            return address
        return np.broadcast_to(address, shape)[np.broadcast_to(mask, shape)]

    def _outside(
        self, line: int, address: Value, size: int, mask: Any, what: str, may: bool
    ) -> None:
        for one in np.unique(self.masked(address, mask)):
            number = int(one) + (1 << _SHIFT - 1) >> _SHIFT
            tensor = self.tensors.get(number)
            at = int(one) - (number << _SHIFT)
            if tensor is not None and 0 <= at and at + size <= tensor.bytes:
                continue
            if may:
                self.unsure.append(f"line {line}: whether {what} stays inside depends on data")
                return
            name = f"{tensor.name}, which has {tensor.bytes} bytes" if tensor else "no tensor"
            text = f"{what} of {size} bytes at byte {at} of {name}"
            self.say(Fault(BOUNDS, line, text))
            return

    def say(self, fault: Fault) -> None:
        if sum(f.kind == fault.kind and f.line == fault.line for f in self.faults) == 0:
            self.faults.append(fault)
