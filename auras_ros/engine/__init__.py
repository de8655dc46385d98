"""Serves a vision-language model: requests go through vision, prefill and decode, many at a time (Nova II, HeteroServe
5.4). Knows no node and no HTTP.
"""
