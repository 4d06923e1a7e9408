"""Agents, a log with Kafka's faults and the projector, driven by one seed: `simulate(seed)`.

`python -m tests.simulation SEED` prints the history of one.
"""
