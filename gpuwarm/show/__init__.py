"""Answers made visible: figures, terminal text, HTML, other tools' formats."""
