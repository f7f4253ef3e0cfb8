"""Evaluation of controllers: see README.md."""
