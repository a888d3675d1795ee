"""The task of one exploration, and its outcome."""

from __future__ import annotations

from dataclasses import dataclass, field

from mirage_py.axioms.saturation.saturate import MAX_NODES, ROUNDS
from mirage_py.axioms.terms.class_table import ClassTable
from mirage_py.axioms.terms.law import Ring
from mirage_py.reasons import Reason
from mirage_py.search.closure.pool import Merging
from mirage_py.search.extract.extract import ExtractionLimits
from mirage_py.search.extract.family import Family
from mirage_py.search.space.abstraction import Abstraction
from mirage_py.search.space.counters import Counter
from mirage_py.search.space.no_pruning import Pruning
from mirage_py.search.space.variants import Variant
from mirage_py.ugraph.ir.program import Program


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """Bounds of a search; all are counts, so a result does not depend on the machine.

    The last three turn off techniques of the search, to measure what each saves
    (benchmarks/search/command.py).

    ``rings``          of laws, searched one after the other: "factored" (products are never
                       multiplied out), "expanded"
    ``rounds``         of saturation; ``max_nodes`` of the e-graph
    ``max_loop_dims``  dimensions that loops of one kernel may go over, one loop after the other
    ``max_loops``      loops that may need one another's results; a layer norm and a linear need 3
    ``max_kernels``    of a family: 1, or 2 and the library calls between them
    ``max_unsplit_kernels``  the same for families that split no reduction
    ``max_tensors``    in the pool of one configuration
    ``extraction``     how many derivations of a kernel that ends the program, and how long to look
    ``epilogue``       the same for a kernel that ends the program and reads another's intermediates
    ``prologue``       the same for a kernel that leaves intermediates to another
    ``max_intermediates``  values that a first kernel may store: of more the likely ones
    ``makers``         configurations in which the same intermediates are made
    ``max_operators``  of one kernel up to a tensor, as closure/pool.py counts them
    ``pruning``        "none": every combination that loops and shapes allow is taken, not only
                       those that have a class; without ``max_operators`` there is no end to them
    ``merging``        "structure": equal values that are computed in different ways are not merged
    ``max_cluster_blocks``  more than 1: also families in which blocks of a cluster reduce together,
                       as many as the target's clusters have; 1 for back ends without clusters
    """

    rings: tuple[Ring, ...] = ("factored", "expanded")
    rounds: int = ROUNDS
    max_nodes: int = MAX_NODES
    max_loop_dims: int = 2
    max_loops: int = 3
    max_kernels: int = 2
    max_unsplit_kernels: int = 2
    max_tensors: int = 3000
    max_intermediates: int = 256
    extraction: ExtractionLimits = field(default_factory=ExtractionLimits)
    epilogue: ExtractionLimits = field(
        default_factory=lambda: ExtractionLimits(derivations=24, alike=1, slack=4.0, expansions=300)
    )
    prologue: ExtractionLimits = field(
        default_factory=lambda: ExtractionLimits(derivations=2, alike=1, expansions=150)
    )
    makers: int = 3
    max_operators: int | None = None
    pruning: Pruning = "classes"
    merging: Merging = "values"
    max_cluster_blocks: int = 1


@dataclass(frozen=True, slots=True)
class Task:
    """A form of a program with its terms and their classes, and how to look at it."""

    variant: Variant
    form: Abstraction
    table: ClassTable
    limits: SearchLimits

    @property
    def program(self) -> Program:
        """The program of the variant."""
        return self.variant.program


@dataclass(slots=True)
class Outcome:
    """What one draw found. ``families`` by digest: two configurations can arrive at one graph.

    ``refuted`` counts derivations that failed in the second field: two tensors of a pool agreed by
    coincidence. ``stopped`` if time was up before the end. ``classes`` and ``saturated`` tell of
    the class table of the program itself, not of a split form.
    """

    families: dict[str, Family] = field(default_factory=dict)
    counter: Counter = field(default_factory=Counter)
    reasons: list[Reason] = field(default_factory=list)
    refuted: int = 0
    exhausted: bool = True
    stopped: bool = False
    classes: int = 0
    saturated: bool = False

    def give_up(self, reason: Reason) -> None:
        """Something was not gone through."""
        self.reasons.append(reason)
        self.exhausted = False

    def add(self, family: Family) -> None:
        """Keep it, or the cheaper way to arrive at it."""
        known = self.families.setdefault(family.ugraph.digest, family)
        if family.cost_us < known.cost_us:
            self.families[family.ugraph.digest] = family

    def merge(self, other: Outcome) -> None:
        """Add what another job found."""
        for family in other.families.values():
            self.add(family)
        self.counter.add(other.counter)
        self.reasons.extend(other.reasons)
        self.refuted += other.refuted
        self.exhausted &= other.exhausted
        self.stopped |= other.stopped
        self.classes = max(self.classes, other.classes)
        self.saturated |= other.saturated
