"""Reasons: why a search ended, why a candidate was dropped, what serves a program and why. A reason
is a code with data, made where the fact arises; its sentence is made here.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum, auto
from typing import Any, NamedTuple


class Code(Enum):
    """What happened, with its sentence: ``{}`` for each item of the data. ``auto()`` is for what is
    said in words of its own, by an error, say: they are the data.
    """

    sentence: str

    @staticmethod
    def _generate_next_value_(*_: object) -> str:
        return "{}"

    def __new__(cls, sentence: str) -> Code:
        """By number, as two codes may have the same sentence."""
        made = object.__new__(cls)
        made._value_ = len(cls.__members__)
        made.sentence = sentence
        return made

    # Why a search found less than there could be.
    POOL_OUTGREW = "the pool outgrew {} tensors ({})"
    BOUND_ON_NODES = "saturation stopped at the bound on nodes ({})"
    BOUND_ON_ROUNDS = "saturation stopped at the bound on rounds ({})"
    EXTRACTION_CUT = "extraction stopped at its bound ({})"
    INTERMEDIATES_CUT = "the likeliest {} of {} values between kernels were tried"
    OUT_OF_TIME = "stopped before the space was gone through"
    REFUTED = "refuted ({}): {}"
    NO_CONFIGURATION = "no configuration reaches all outputs"
    UNSAFE_FAMILIES = "{} dropped: {}"
    # Why a program cannot be searched, in the words of the error.
    DIVIDES_BY_ZERO = auto()
    NO_FIELD_VALUE = auto()
    NO_FIELD_OPERATOR = auto()
    BLOCK_OPERATOR = auto()
    TOO_MANY_AXES = auto()
    # The rule that turned a tensor away.
    GRID = "grid: a block sees only its own part of the dimension"
    PURE = "intermediate: no reduction in it, so its reader computes it"
    IMAGE = "intermediate: a function of one stored tensor, so its reader computes it"
    MATERIALISATION = "materialisation: the product is only ever contracted"
    MAX_LOOPS = "max_loops: more than {} loops in a row"
    MAX_OPERATORS = "max_operators: more than {} operators"
    REDUCED_TILE = "phase: a tile is reduced before it is accumulated"
    TWO_LOOPS = "phase: tensors of loops over different dimensions"
    WHOLE_AND_TILE = "phase: the whole of a dimension cannot meet one tile of it"
    ROUNDING = "rounding: another way to the same value keeps digits that this one loses"
    NO_TILE = "shape: no tile of the dimension to reduce"
    ZERO_DIVISION = "zero division: a divisor is zero in every draw"
    # What a bound on the error of the field test rests on, or why there is none.
    SCHWARTZ_ZIPPEL = (
        "Schwartz-Zippel for {} trials at the small sizes, per trial {} / q, whatever functions "
        "exp, sqrt and the like are"
    )
    BOUND_ABOVE_ONE = "the bound that is proven is above 1"
    SELECTS_BY_NO_TRUTH_VALUE = "no bound is proven: a selection is by what is no truth value"
    EQUAL_BY_LAWS = (
        "no bound is proven: the µGraph is equal by laws of {}, which the trials check and the "
        "proof does not know"
    )
    NO_BOUND = "no bound is proven: {}"
    DIFFERENT = "the two differ"
    LIBRARY_CONVOLUTION = "a library's convolution, found at its real sizes, compared at small: {}"
    PART_BY_PART = "part by part; {}"
    OTHER_PARTS = "{}; with other parts than the plan's: {}"
    # Why a candidate was dropped: code, resources, time.
    NOT_EMITTED = "it cannot be emitted: {}"
    NO_SCHEDULE = auto()
    NOT_COMPILED = auto()
    WRONG_MACHINE_CODE = auto()
    TIMED_OUT = auto()
    CRASHED = auto()
    NOT_BEGUN = auto()
    SHARED_MEMORY = "{} takes {} bytes of shared memory, {} has {}"
    QUARANTINED = "it is not launched: {}"
    NOT_TIMED = "it does not run: {}"
    # Why a candidate was dropped: its results.
    NOT_RUN = auto()
    WRONG_SHAPE = "{} has shape {}, not {}"
    NOT_FINITE = "{} is not finite"
    FINITE = "{} is finite"
    NOT_SELECTED = "{}, which is selected"
    TOO_FAR = "{}, more than {} away, and so are {} others of {}"
    WORSE_THAN_EAGER = "{} has a relative error of {}, more than twice the {} of eager PyTorch"
    OFF_TOGETHER = "the elements of {} have an error in common: {} times what rounding explains"
    WRITES_TO_INPUT = "it writes to its input {}"
    RACE = "two launches on the same inputs differ by {}: a race"
    UNCHECKED = "not checked against float64: {}"
    NOT_EQUAL = auto()
    # Why a kernel of ours serves a program, or none does.
    KERNEL = auto()
    BEST = "{} beside {}"
    BESIDE_TORCH = "{}; PyTorch has {} of {} steps: {}"
    ORIGINAL_FASTER = "the original program is faster than every candidate"
    HOST_BOUND = (
        "in a loop a call of the fastest kernels takes {} us, of which the GPU {}, and one of the "
        "original program {} us, of which the GPU {}"
    )
    ANOTHER_PROGRAM = (
        "the function is not the program that was traced from it, which is a fault of mirage_py to "
        "report: on random inputs they are {} apart, where rounding explains {}"
    )
    NONE_FASTER = "nothing was found that is faster: {}"
    NO_CANDIDATE_PASSED = "no candidate ran and gave the right result"
    FASTEST_WAS_REFUSED = (
        "no candidate ran and gave the right result; the fastest was refused, {}: {}"
    )
    NO_UGRAPH = "no fused µGraph was found: {}"
    NONE_FITS = "no family fits {}"
    NONE_VERIFIED = "no family passed verification"
    NO_PLAN_OF_A_PART = "{} has no plan"
    PARTS_SLOWER = "the original program is faster than the parts in sequence"
    NO_TIME = "the time budget is too short to search its {} operators"
    WRONG_AT_SIZES = "kernels for many sizes do not pass: {}"
    REFERENCE = "its program in plain PyTorch"
    # Why a function that is no program is served as it is.
    IN_PARTS = "{} of {} operators in regions; as a whole it is no program: {}"
    AT_FIRST_CALL = "decided at its first call; as a whole it is no program: {}"
    FAILED = auto()
    FAILED_BEFORE = "at an earlier start: {}"
    MET_INSIDE_CUDA_GRAPH = "met for the first time inside a CUDA graph"
    MAX_SIZES = "beyond the first {} sets of sizes (max_sizes)"
    MAX_REGIONS = "beyond the first {} regions (max_regions)"
    # Why an operator of a graph is in no region.
    NO_HANDLER = auto()
    EMPTY_TENSOR = "it makes an empty tensor"
    COMPLEX_NUMBERS = "complex numbers are not supported"
    RESULT_TYPE = "its result is of {}, and data are real numbers"
    OPERAND_TYPE = "it reads data of {}"
    OPERAND_DEVICE = "it reads data on another device"
    GROWING_CACHE = (
        "it copies what is there already into a longer tensor, as a cache that grows does"
    )
    SIZE_IS_NUMBER = "a size that changes is a number in it"
    LEFT_TO_INDUCTOR = "Inductor has the library's operators, writes in place, and lays tensors out"
    GRADIENT_OF_ATTENTION = "the gradient wants what only torch's own attention leaves behind"
    SAVES_NOTHING = "a kernel of ours would save nothing"
    # Why a call falls back to the function itself, in the words of the error.
    INSIDE_CUDA_GRAPH = auto()
    UNSTEADY = auto()
    UNHASHABLE = auto()
    REQUIRES_GRAD = auto()
    SEVERAL_DEVICES = auto()
    NOT_ON_A_GPU = auto()
    # torch itself may refuse the call.
    TORCH_RAISES = auto()
    # The words of an error that has no code, or what another version said.
    OTHER = auto()


# What the numerical check refuses a candidate for.
WRONG_RESULTS = (
    Code.NOT_FINITE,
    Code.FINITE,
    Code.NOT_SELECTED,
    Code.TOO_FAR,
    Code.WORSE_THAN_EAGER,
    Code.OFF_TOGETHER,
    Code.RACE,
    Code.UNCHECKED,
)


class Reason(NamedTuple):
    """Why; ``where`` is a part of the program, or empty. ``str`` gives the sentence."""

    code: Code
    data: tuple[str, ...] = ()
    where: str = ""

    def __str__(self) -> str:
        sentence = self.code.sentence.format(*self.data)
        return f"{self.where}: {sentence}" if self.where else sentence

    def at(self, where: str) -> Reason:
        """The same, and where or when it was found."""
        return self._replace(where=f"{where}: {self.where}" if self.where else where)

    @property
    def name(self) -> str:
        """Its code in reports."""
        return self.code.name.lower()

    def document(self) -> dict[str, Any]:
        """As JSON, for ``read_reason``."""
        where = {"where": self.where} if self.where else {}
        return {"code": self.name, "data": list(self.data), **where}


def reason(code: Code, *data: object) -> Reason:
    """A reason with its data as they are printed."""
    return Reason(code, tuple(map(str, data)))


def read_reason(held: Mapping[str, Any]) -> Reason:
    """What ``Reason.document`` gave. Raises KeyError for a code that there is not."""
    where = str(held.get("where", ""))
    return Reason(Code[held["code"].upper()], tuple(map(str, held["data"])), where)


def why_original(report: Mapping[str, Any]) -> Reason:
    """Why the result of a report is the original program; older reports do not say."""
    held = report.get("served")
    return Reason(Code.ORIGINAL_FASTER) if held is None else read_reason(held)


class Server(StrEnum):
    """What runs when a program is called."""

    OURS = "mirage_py"
    IN_PARTS = "mirage_py in parts"
    TORCH_COMPILE = "torch.compile"
    EAGER = "eager"


class Served(NamedTuple):
    """What serves a program, and why that and nothing else."""

    by: Server
    why: Reason

    def __str__(self) -> str:
        return f"{self.by}: {self.why}"

    def document(self) -> dict[str, Any]:
        """As JSON, with the sentence of the reason."""
        return {"by": self.by, "why": str(self.why), **self.why.document()}
