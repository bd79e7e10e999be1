"""The transports, one file each; ``ddpflow.comm.registry`` finds them by name."""

__all__: list[str] = []
