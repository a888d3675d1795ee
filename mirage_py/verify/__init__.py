"""Evidence that a µGraph computes its program: a test over finite fields and a test over floats."""

from __future__ import annotations
