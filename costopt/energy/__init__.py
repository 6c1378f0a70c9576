"""Energy and emissions: the power of a node, energy at the meter and carbon intensity."""

from costopt.energy.node_power import NodePowerModel, node_power_w

__all__ = ["NodePowerModel", "node_power_w"]
