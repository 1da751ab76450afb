"""Trains one model in stages on different devices, each with programs of its own."""
