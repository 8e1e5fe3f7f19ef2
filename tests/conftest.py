"""Fixtures that several folders' tests share."""

from __future__ import annotations
