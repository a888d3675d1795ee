"""The check of a foreign artifact against its program, once, before it is run.

A folder whose checksums fit may hold a valid µGraph that computes something else. What was saved or
checked here is sealed and costs nothing; anything else is compared with its program over finite
fields, at small sizes and on samples at its own.
"""

from __future__ import annotations

import secrets

from mirage_py.errors import MirageError, VerificationError
from mirage_py.runtime.store.artifact import Artifact
from mirage_py.runtime.store.seals import is_sealed, seal
from mirage_py.ugraph.rewrite.masks import lower_masks
from mirage_py.verify.field_test.field_test import field_test
from mirage_py.verify.samples.sampled_test import sampled_test

_TRIALS = 2


def checked(found: Artifact) -> Artifact:
    """The same artifact. Raises VerificationError if it is unknown here and not what it says."""
    if found.plan is None or is_sealed(found):
        return found
    # Nobody may know the inputs beforehand, and make a µGraph that differs elsewhere alone.
    seed = secrets.randbits(32)
    try:
        program = lower_masks(found.program)
        field_test(program, found.plan.ugraph, trials=_TRIALS, seed=seed).require()
        sampled_test(program, found.plan.ugraph, seed=seed).require()
    except MirageError as error:
        raise VerificationError(
            "holds kernels that are not known here and do not pass for its program",
            where=str(found.folder),
            why=f"{error.what} {error.why}".strip(),
            repair="make it here, or load(folder, check=False) where its author is trusted",
        ) from None
    seal(found)
    return found
