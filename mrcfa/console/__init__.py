"""The terminal: arguments, notices and progress."""
