"""How one agent, or a population of them, learns: losses, algorithms, optimisers, randomness.

Shapes throughout: P agents, B batch, A actions, N quantiles.
"""
