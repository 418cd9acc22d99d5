"""Fixtures: quicker graphs."""

from __future__ import annotations

from helpers.untraced import untraced

__all__ = ["untraced"]
