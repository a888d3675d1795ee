"""Certificates: what proves a µGraph equal to its program, and the checker that replays it."""
