"""Learning of one agent or of a population: losses, algorithms, optimisers, randomness.

Shapes throughout: P agents, B batch, A actions, N quantiles; [] is a scalar.
"""
