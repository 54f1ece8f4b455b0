"""Many independent agents as one batched program.

Shapes throughout: P agents, B batch, A actions, E evaluation environments per agent.
"""
