"""Many jobs over many slots: Dantzig–Wolfe decomposition with a schedule per job as a column.

``path`` finds a job's best schedule at given prices, ``master`` finds the prices, ``insertion`` and
``polish`` make schedules that keep every limit.
"""
