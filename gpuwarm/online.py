"""The rule of `analysis/steady.py`, applied while somebody's own loop runs."""
