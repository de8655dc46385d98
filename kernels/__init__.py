"""What each layer calls: the operations that Nova fuses (IV), each in one place and beside a plain reference in the
tests.

Kernels know no request, node or clock: tensors in, tensors out.
"""
