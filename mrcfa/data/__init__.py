"""Datasets, class labels, metrics and synthetic data."""
