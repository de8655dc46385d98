"""GPU kernels, each beside the plain torch reference that it is tested against.

Empty until the adapter kernel. Kernels know no request, node or clock: tensors in, tensors out.
"""
