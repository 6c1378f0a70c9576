"""Live carbon intensities: services that are asked over HTTP, their cache, and the ports."""

from costopt.energy.live.live_carbon import LiveCarbon, PresentIntensity

__all__ = ["LiveCarbon", "PresentIntensity"]
