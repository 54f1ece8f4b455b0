"""How one agent, or a population of them, learns: losses, algorithms, optimisers, randomness.

Shapes throughout: P agents, B minibatch, A actions, N quantiles.
"""
