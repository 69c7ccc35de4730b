"""What placements cost: NVML and iteration timers."""
