"""The mathematics of pruning: tensors in, tensors out."""
