"""Gradient rules on raw arrays, by family. These files know no tensors; see `ddpflow.autograd.op` for how."""
