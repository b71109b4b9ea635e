"""Measurement of bundles: parity, speed, cost, evaluation and the report."""
