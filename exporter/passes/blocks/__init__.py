"""Repeated blocks of a graph: finding them, proving them equal, and loops made of them."""
