"""LoRA adapters at run time (VaLoRA): which are in memory, what they add to a batch, and which one is merged.

Knows no requests and no time: its orchestrator is a scheduler of the engine.
"""
