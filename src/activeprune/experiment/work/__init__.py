"""Who computes what a plan still lacks, and how: one step after the other, packs on a GPU, several processes."""
