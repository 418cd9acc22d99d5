"""Tests of engines.

This file lets fixtures have the scope `package`: they end with the last test of this folder.
"""
