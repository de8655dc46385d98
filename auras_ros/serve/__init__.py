"""The engine behind OpenAI's HTTP interface: requests become the engine's own, and its answers OpenAI's."""
