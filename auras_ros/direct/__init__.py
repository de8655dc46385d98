"""Policies and vision-language models called from Python, without topics, nodes or a server."""
