"""Numbers and words from a recording or a machine state: pure, no hardware."""
