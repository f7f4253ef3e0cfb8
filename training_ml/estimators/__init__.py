"""The classifiers that can be fitted: see README.md."""
