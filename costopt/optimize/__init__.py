"""The optimizer: a mixed-integer program over configurations and time slots.

``planner.plan`` is the entry point: it maps jobs, offers and a policy to a plan. ``solver`` is the
only package that imports PuLP.
"""
