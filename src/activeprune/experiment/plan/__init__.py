"""What is to be computed: studies, read from files, and the graph of steps that follows from them."""

from .plan import Plan, Seen, Todo, behind, is_whole_training, part_of

__all__ = ["Plan", "Seen", "Todo", "behind", "is_whole_training", "part_of"]
