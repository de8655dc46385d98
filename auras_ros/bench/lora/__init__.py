"""VaLoRA's benches: adapters, what is merged, and task heads."""
