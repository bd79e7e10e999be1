"""A transport of your own: arrays that travel through the job's key-value store. Slow, and complete in 80 lines.

    ddprun --nproc-per-node 3 examples/custom_backend.py

The group checks arguments, flattens arrays, numbers calls and names ranks in errors. The transport moves bytes, and
asks ``Backend`` for the texts of its errors. In a package of its own it would be registered as
``"my_package.store:StoreBackend"``.
"""

import struct
from typing import ClassVar, Self

import numpy as np

import ddpflow.comm as dist
from ddpflow.comm import Backend, GroupSpec, ReduceOp, Work
from ddpflow.comm.reduce import reduce_in_rank_order
from ddpflow.comm.signature import Call, Signature
from ddpflow.comm.work import CompletedWork
from ddpflow.errors import CollectiveTimeout

HEAD = struct.Struct("6q")


class StoreBackend(Backend):
    """Every rank puts its part into the store and reads those of the others; each call is over when it returns."""

    name: ClassVar[str] = "store"

    @classmethod
    def create(cls, spec: GroupSpec) -> Self:
        return cls(spec)

    def exchange(self, call: Call, signature: Signature, data: bytes) -> list[np.ndarray]:
        """Returns the bytes of all ranks, after a check that they made the same call."""
        store, n, own = self.spec.store, self.spec.size, self.spec.group_rank
        store.set(f"{call.seq}/{own}", HEAD.pack(*signature) + data)
        keys = [f"{call.seq}/{rank}" for rank in range(n)]
        try:
            store.wait(keys, call.timeout_s)
        except CollectiveTimeout:
            missing = [rank for rank in range(n) if not store.check([keys[rank]])]
            raise self.timeout_error(call, call.timeout_s, missing) from None
        values = [store.get(key) for key in keys]
        for rank, value in enumerate(values):
            other = Signature(*HEAD.unpack_from(value))
            if other != signature:
                raise self.mismatch_error(call, signature, rank, other)
        if call.seq > 1:
            # Everybody is at this call, so nobody needs the one before it.
            store.delete(f"{call.seq - 1}/{own}")
        return [np.frombuffer(value, np.uint8, offset=HEAD.size) for value in values]

    def all_reduce(self, array: np.ndarray, op: ReduceOp, call: Call) -> Work:
        parts = self.exchange(call, self.signature(call, array, op), array.tobytes())
        reduce_in_rank_order([part.view(array.dtype) for part in parts], array, op)
        return CompletedWork(array)

    def broadcast(self, array: np.ndarray, call: Call) -> Work:
        own = self.spec.group_rank == call.root
        parts = self.exchange(call, self.signature(call, array), array.tobytes() if own else b"")
        array[:] = parts[call.root].view(array.dtype)
        return CompletedWork(array)

    def all_gather(self, out: np.ndarray, array: np.ndarray, call: Call) -> Work:
        out[:] = np.concatenate(self.exchange(call, self.signature(call, array), array.tobytes())).view(out.dtype)
        return CompletedWork(out)

    def reduce_scatter(self, out: np.ndarray, array: np.ndarray, op: ReduceOp, call: Call) -> Work:
        parts = self.exchange(call, self.signature(call, out, op), array.tobytes())
        start = self.spec.group_rank * out.size
        reduce_in_rank_order([part.view(out.dtype)[start : start + out.size] for part in parts], out, op)
        return CompletedWork(out)

    def barrier(self, call: Call) -> Work:
        self.exchange(call, self.signature(call), b"")
        return CompletedWork()

    def send(self, array: np.ndarray, peer: int, message_tag: int, call: Call) -> Work:
        raise NotImplementedError("this transport has collectives only")

    def recv(self, array: np.ndarray, peer: int | None, message_tag: int, call: Call) -> Work:
        raise NotImplementedError("this transport has collectives only")

    def abort(self, reason: str) -> None:
        self.spec.store.set("aborted", reason)

    def close(self, timeout_s: float) -> None:
        self.spec.store.set(f"left/{self.spec.group_rank}", b"")


def main() -> None:
    dist.register_backend("store", f"{__name__}:StoreBackend")
    dist.init_process_group("store", timeout=20)
    rank, size = dist.get_rank(), dist.get_world_size()
    x = np.arange(4.0) + rank
    dist.all_reduce(x, ReduceOp.AVG)
    gathered = np.empty((size, 2))
    dist.all_gather_into_tensor(gathered, np.array([rank, rank + 0.5]))
    assert x.tolist() == (np.arange(4.0) + (size - 1) / 2).tolist() and gathered[-1, 0] == size - 1
    if rank == 0:
        print(f"{size} ranks over {dist.get_backend()!r}: average {x.tolist()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
