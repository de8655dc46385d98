"""`auras bench peers-vlm`: vLLM and transformers' `generate` compared with `auras serve`, over HTTP, same weights."""
