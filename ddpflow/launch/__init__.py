"""Starting the processes of a job: the program ``ddprun``, and ``spawn`` for notebooks and tests."""

from ddpflow.launch.spawning import spawn

__all__ = ["spawn"]
