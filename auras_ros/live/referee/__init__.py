"""Plays episodes over topics like a person with a stopwatch and a camera: referees, measures, films, draws."""
