"""GPU kernels, each beside the plain torch reference that it is tested against.

The room is empty until the adapter kernel comes. A kernel here never knows a request, a node
or a clock: tensors in, tensors out.
"""
