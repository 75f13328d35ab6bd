"""Protocols that need both measuring and analysis while they run."""
