"""Encoded images in memory: validate, decode, downscale. Nothing in this package opens a file."""
