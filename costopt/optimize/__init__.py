"""(jobs, offers, policy) → plan: a mixed-integer program over configurations and time slots.

``planner.plan`` is the way in; ``solver`` is the only module that imports PuLP.
"""
