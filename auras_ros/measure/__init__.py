"""How anything is measured: executors in windows of interleaved rounds, within a bench's minutes, on so many cores."""
