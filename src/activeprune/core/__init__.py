"""The mathematics of pruning: tensors in, tensors out.

Devices: masks decide. What is compared with masks (scores, states) is brought to their device, and new masks live
there. A model stays where it is, and its batches must be there already.
"""
