"""What the processes share, and what starts them. It knows neither agent nor actuator but by name."""
