"""Many jobs over many slots: Dantzig–Wolfe decomposition with a schedule per job as a column.

``pricing`` finds a job's best schedule at given prices, ``master`` finds the prices, ``packing``
and ``polish`` make schedules that respect every limit.
"""
