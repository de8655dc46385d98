"""What every result is written in: one form of report, statistics, aligned tables and pictures."""
