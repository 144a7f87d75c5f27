"""Runtimes that open, run and measure an exported model."""
