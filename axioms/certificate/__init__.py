"""Certificates that prove a µGraph equal to its program, and the checker that replays them."""
