"""How a model perceives and generates, behind four methods; and how its checkpoint is read and written."""
