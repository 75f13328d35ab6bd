"""Other tools' files as recordings or machine states: pure, no hardware."""
