"""Fitting of classifiers that steer: see README.md."""
