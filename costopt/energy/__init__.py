"""Energy and emissions: the power of a node, energy at the meter and carbon intensity."""

from costopt.energy.carbon import AnnualCarbon
from costopt.energy.node_power import Cooling, NodePowerModel, node_power_w

__all__ = ["AnnualCarbon", "Cooling", "NodePowerModel", "node_power_w"]
