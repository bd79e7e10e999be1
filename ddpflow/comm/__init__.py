"""Communication between the processes of a job, under the names of ``torch.distributed``.

import ddpflow.comm as dist

dist.init_process_group()
dist.all_reduce(x)
"""

from ddpflow.comm.backend import Backend, GroupSpec
from ddpflow.comm.coalesced import all_gather_coalesced, all_reduce_coalesced, broadcast_coalesced
from ddpflow.comm.collectives import (
    P2POp,
    all_gather,
    all_gather_into_tensor,
    all_ranks_agree,
    all_reduce,
    all_to_all,
    all_to_all_single,
    barrier,
    batch_isend_irecv,
    broadcast,
    gather,
    irecv,
    isend,
    recv,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
    send,
)
from ddpflow.comm.default import destroy_process_group, init_process_group
from ddpflow.comm.env import ProcessContext
from ddpflow.comm.file_store import FileStore
from ddpflow.comm.group import ProcessGroup
from ddpflow.comm.monitored import monitored_barrier
from ddpflow.comm.objects import (
    all_gather_object,
    broadcast_object,
    broadcast_object_list,
    gather_object,
    recv_object_list,
    scatter_object_list,
    send_object_list,
)
from ddpflow.comm.reduce import ReduceOp
from ddpflow.comm.registry import backend_names, is_backend_available, register_backend
from ddpflow.comm.store import HashStore, PrefixStore, Store
from ddpflow.comm.subgroups import new_group, new_subgroups, new_subgroups_by_enumeration, split
from ddpflow.comm.tcp_store import TCPStore
from ddpflow.comm.work import Work
from ddpflow.comm.world import (
    NonMember,
    current_group,
    get_backend,
    get_global_rank,
    get_group_rank,
    get_local_rank,
    get_node_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    group_scope,
    is_initialized,
    process_context,
)

__all__ = [
    "Backend",
    "FileStore",
    "GroupSpec",
    "HashStore",
    "NonMember",
    "P2POp",
    "PrefixStore",
    "ProcessContext",
    "ProcessGroup",
    "ReduceOp",
    "Store",
    "TCPStore",
    "Work",
    "all_gather",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_ranks_agree",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "backend_names",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "broadcast_coalesced",
    "broadcast_object",
    "broadcast_object_list",
    "current_group",
    "destroy_process_group",
    "gather",
    "gather_object",
    "get_backend",
    "get_global_rank",
    "get_group_rank",
    "get_local_rank",
    "get_node_rank",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "group_scope",
    "init_process_group",
    "irecv",
    "is_backend_available",
    "is_initialized",
    "isend",
    "monitored_barrier",
    "new_group",
    "new_subgroups",
    "new_subgroups_by_enumeration",
    "process_context",
    "recv",
    "recv_object_list",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "register_backend",
    "scatter",
    "scatter_object_list",
    "send",
    "send_object_list",
    "split",
]
