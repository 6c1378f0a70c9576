"""The meters of one node, read once a second beside the agent's loop."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

from costopt.agent.meter.gpu import GpuMeter, GpuSample, open_gpu_meter
from costopt.agent.meter.rapl import RaplMeter, open_rapl_meter
from costopt.protocol.messages import CPU, GPU, NodeMeasurement

SAMPLE_S = 1.0
JOULES_PER_WH = 3600.0


class NodeMeter:
    """Adds up what the meters say. ``training`` is set while the trainer trains.

    A meter that fails once is out for good, and with it the energy from then on: a sum with a
    part that comes and goes would be no figure of anything.
    """

    def __init__(self, gpu: GpuMeter | None, rapl: RaplMeter | None) -> None:
        self.training = False
        self._gpu = gpu
        self._rapl = rapl
        now = time.time()
        parts = ((GPU,) if gpu else ()) + ((CPU,) if rapl else ())
        self._reading = NodeMeasurement(
            since=now,
            at=now,
            energy_wh=0.0 if parts else None,
            parts=parts,
            gpus=0 if gpu is None else gpu.gpus,
        )
        self._sampled_at = time.monotonic()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        if gpu is not None:
            gpu.sample(self._sampled_at)
        if rapl is not None:
            rapl.sample()

    def start(self) -> None:
        """Sample every second from here on, where there is anything to sample."""
        if self._gpu is not None or self._rapl is not None:
            self._thread = threading.Thread(target=self._run, name="meter", daemon=True)
            self._thread.start()

    def reading(self) -> NodeMeasurement:
        """The newest totals; does not wait for a meter."""
        return self._reading

    def close(self) -> None:
        """Take a last sample, unless a meter has failed, and stop."""
        if self._thread is not None and not self._closed.is_set():
            self.sample()
        self._closed.set()
        if self._gpu is not None:
            self._gpu.close()

    def sample(self) -> None:
        """Add what was used since the last sample."""
        with self._lock:
            now_s, wall = time.monotonic(), time.time()
            passed_s, self._sampled_at = now_s - self._sampled_at, now_s
            gpu = None if self._gpu is None else self._gpu.sample(now_s)
            cpu_j = 0.0 if self._rapl is None else self._cpu_joules()
            before = self._reading
            if cpu_j is None or (gpu is None and GPU in before.parts):
                self._closed.set()
                self._reading = replace(_shown(before, gpu), power_w=None)
            elif before.energy_wh is not None and passed_s > 0:
                joules = cpu_j + (0.0 if gpu is None else gpu.joules)
                used_wh = joules / JOULES_PER_WH
                self._reading = replace(
                    _shown(before, gpu),
                    at=wall,
                    energy_wh=before.energy_wh + used_wh,
                    training_wh=before.training_wh + (used_wh if self.training else 0.0),
                    training_s=before.training_s + (passed_s if self.training else 0.0),
                    power_w=joules / passed_s,
                )

    def _cpu_joules(self) -> float | None:
        assert self._rapl is not None
        try:
            return self._rapl.sample()
        except (OSError, ValueError):
            return None

    def _run(self) -> None:
        while not self._closed.wait(SAMPLE_S):
            self.sample()


def _shown(reading: NodeMeasurement, gpu: GpuSample | None) -> NodeMeasurement:
    return replace(
        reading,
        gpu_utilization=None if gpu is None else gpu.utilization,
        gpu_memory_share=None if gpu is None else gpu.memory_share,
    )


def open_node_meter() -> tuple[NodeMeter, tuple[str, ...]]:
    """The meter of this node, and what cannot be measured and why: to be told once."""
    gpu, no_gpu = open_gpu_meter()
    rapl, no_rapl = open_rapl_meter()
    return NodeMeter(gpu, rapl), tuple(text for text in (no_gpu, no_rapl) if text)
