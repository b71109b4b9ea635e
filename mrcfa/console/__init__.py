"""The terminal: arguments, warnings and progress."""
