"""Parity, speed, cost and the report."""
