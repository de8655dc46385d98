"""`auras bench cohost`: what a busy vision-language model on another core costs the policy."""
