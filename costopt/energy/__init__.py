"""Energy and emissions: the power of a node, energy at the meter and carbon intensity."""

from costopt.energy.carbon import AnnualCarbon
from costopt.energy.node_power import NodePowerModel, node_power_w

__all__ = ["AnnualCarbon", "NodePowerModel", "node_power_w"]
