"""The machine: hardware, drivers, files, and optional packages."""
