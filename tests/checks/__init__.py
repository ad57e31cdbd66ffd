"""Exercises of each lesson, and the tests of their checks."""
