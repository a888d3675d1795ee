"""Every error the project raises on purpose.

    MirageError
    ├── InputError            exit 2   bad spec, bad shape, bad option, bad file
    │   ├── SpecError                  a math spec; carries line, column and a caret
    │   └── FormatError                a stored file that does not parse or was altered
    ├── VerificationError     exit 4   two programs that should be equal are not
    ├── UnsupportedError      exit 5   an operator or form the project does not know
    ├── ValidationError       exit 1   an ill-formed µGraph (a bug when the project built it itself)
    ├── ScheduleError         exit 6   a µGraph that has no legal schedule on the target
    ├── CompileError          exit 6   no candidate compiled or launched
    └── LostGpuError          exit 6   a kernel broke this process's GPU context

Each says what happened, where, why, and what to try.
"""

from __future__ import annotations

from dataclasses import dataclass

from mirage_py.reasons import Code, Reason, reason

# Messages quote what they were given. Of a name of 10^5 letters the beginning tells enough.
MAX_PART_CHARACTERS = 2000
# Of a line of source that is longer, so much is shown around the place.
_LINE_CHARACTERS = 160


class MirageError(Exception):
    """Base of all errors; ``exit_code`` is what the command line returns for it."""

    exit_code = 1

    def __init__(
        self,
        what: str,
        *,
        where: str = "",
        why: str = "",
        repair: str = "",
        code: Code = Code.OTHER,
    ) -> None:
        self.what = what
        self.code = code
        self.where = where
        self.why = why
        self.repair = repair
        super().__init__(self.render())

    def render(self) -> str:
        """The message as the user sees it: one line each for where, what, why and the repair."""
        return "\n".join([self._head(), *self._help()])

    def _head(self) -> str:
        return _clipped(f"{self.where}: {self.what}" if self.where else self.what)

    def _help(self) -> list[str]:
        parts = [("why", self.why), ("try", self.repair)]
        return [f"  {name}: {_clipped(text)}" for name, text in parts if text]

    def __reduce__(self) -> tuple[object, ...]:
        # Worker processes send errors back: keyword-only arguments need help to be pickled.
        return (_rebuild, (type(self), dict(self.__dict__)))


def _rebuild(kind: type[MirageError], state: dict[str, object]) -> MirageError:
    error = kind.__new__(kind)
    error.__dict__.update(state)
    Exception.__init__(error, error.render())
    return error


def why_failed(error: Exception) -> Reason:
    """An error as the reason why something else serves: its code, and what happened."""
    if isinstance(error, MirageError):
        return reason(error.code, f"{error.what} ({error.why})" if error.why else error.what)
    return reason(Code.FAILED, f"{type(error).__name__}: {error}")


class MirageWarning(UserWarning):
    """Something was not done as asked: another function serves a call, a cache is not used."""


class InputError(MirageError):
    """Bad input from the user."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """A place in a text file; line and column count from 1."""

    file: str
    line: int
    column: int
    source_line: str
    width: int = 1


class SpecError(InputError):
    """A math spec that cannot be understood, with the place and the repair."""

    def __init__(
        self, what: str, position: SourcePosition, *, why: str = "", repair: str = ""
    ) -> None:
        self.position = position
        where = f"{position.file}:{position.line}:{position.column}"
        super().__init__(what, where=where, why=why, repair=repair)

    def render(self) -> str:
        line, before, width = _window(self.position)
        shown = f"  {self.position.line:4d} | {line}"
        caret = f"       | {' ' * before}{'^' * width}"
        return "\n".join([self._head(), shown, caret, *self._help()])


def _clipped(text: str) -> str:
    left_out = len(text) - MAX_PART_CHARACTERS
    if left_out <= 0:
        return text
    return f"{text[:MAX_PART_CHARACTERS]}... ({left_out} characters more)"


def _window(position: SourcePosition) -> tuple[str, int, int]:
    """The part of the line to show, the characters in front of the caret, and its width."""
    line, before, width = position.source_line, position.column - 1, max(1, position.width)
    if max(len(line), before + width) > _LINE_CHARACTERS:
        start = max(0, before - _LINE_CHARACTERS // 2)
        line = line[start : start + _LINE_CHARACTERS]
        before, width = before - start, min(width, _LINE_CHARACTERS - (before - start))
        if start:
            line, before = f"...{line}", before + 3
    return line, before, width


class FormatError(InputError):
    """A stored file is not what it says it is."""


class VerificationError(MirageError):
    """Two programs were found to differ."""

    exit_code = 4


class UnsupportedError(MirageError):
    """An operator or construct that is not supported."""

    exit_code = 5


class ValidationError(MirageError):
    """A µGraph breaks a rule of the IR."""


class ScheduleError(MirageError):
    """No legal schedule exists for a µGraph on a target."""

    exit_code = 6


class CompileError(MirageError):
    """Code generation, compilation or launch failed."""

    exit_code = 6


class LostGpuError(MirageError):
    """The kernel ``launched`` has broken this process's GPU context: nothing can run there now."""

    exit_code = 6

    def __init__(
        self, what: str, *, launched: str, where: str = "", why: str = "", repair: str = ""
    ) -> None:
        self.launched = launched
        super().__init__(what, where=where, why=why, repair=repair)
