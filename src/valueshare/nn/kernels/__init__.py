"""GPU kernels in Triton, for products of a population that PyTorch computes in several passes over memory.

`nn/operators.py` makes operators of PyTorch from them. Everything is contiguous and float32 unless said otherwise.
Products are those of TensorFloat-32, or of pairs of bfloat16 numbers, x = high + low, which have more digits and whose
operands may lie in memory in either order.
"""
