"""The launcher of a job's first host: the others come to it, and it decides for all."""

import socket
import time
from dataclasses import asdict

from ddpflow.comm.failure import FailureRecord
from ddpflow.errors import LaunchError
from ddpflow.launch.channel import Channel, Message
from ddpflow.launch.lookup import Lookup
from ddpflow.launch.loop import Loop
from ddpflow.launch.meeting import Attempts, Finish, Hooks, Start, listen, lost_record
from ddpflow.launch.options import Options

__all__ = ["FirstHost"]

_FIRST_WORD_S, _NEXT_WORD_S = 2.0, 30.0
_PARTING_S = 2.0
_OWN_NAME_S, _LOOKUP_S = 30.0, 0.5


class FirstHost:
    """Node 0: listens on the master address, and counts heads.

    Args:
        loop: Event loop.
        options: The command line.
        token: The hosts' shared secret.
        run_id: Name of the job.
        hooks: What to call.
    """

    def __init__(self, loop: Loop, options: Options, token: bytes, run_id: str, hooks: Hooks) -> None:
        self._loop, self._options, self._token, self._hooks = loop, options, token, hooks
        self._attempts = Attempts(run_id, options.max_restarts)
        self._strangers: list[Channel] = []
        self._guests: dict[int, Channel] = {}
        self._hello: dict[int, Message] = {0: {"nproc": options.nproc, "host": socket.gethostname()}}
        self._first_rank: dict[int, int] = {}
        self._problem: str | None = None
        self._started = False
        self._running: set[int] = set()
        self._root: FailureRecord | None = None
        self._stopped = False
        self._parting = False

    def meet(self) -> Start:
        """Waits for the other hosts, checks that they want the same job, and starts it."""
        options = self._options
        deadline = time.monotonic() + options.timeout_s
        listener = self._listen_by_name()
        listener.setblocking(False)
        self._loop.add_reader(listener.fileno(), lambda: self._accept(listener))
        word = self._loop.call_later(_FIRST_WORD_S, lambda: self._tell_who_is_missing(deadline))
        late = self._loop.call_later(options.timeout_s, self._give_up)
        try:
            self._loop.run_until(lambda: self._problem is not None or len(self._hello) == options.nnodes)
        finally:
            self._loop.remove_reader(listener.fileno())
            word.cancel()
            late.cancel()
        if self._problem is not None:
            listener.close()
            self._part({"kind": "refused", "why": self._problem})
            raise LaunchError(self._problem)
        for stranger in self._strangers:
            stranger.close()
        self._strangers = []
        rank = 0
        for node in range(options.nnodes):
            self._first_rank[node] = rank
            rank += self._hello[node]["nproc"]
        self._started = True
        return self._start(listener)

    def failed(self, record: FailureRecord) -> None:
        """Tells all others."""
        self._send_all({"kind": "failed", "record": asdict(record)})

    def stop(self, number: int) -> None:
        """Tells all others."""
        self._stopped = True
        self._send_all({"kind": "stop", "signal": number})

    def ended(self, root: FailureRecord | None, stopped: bool) -> Start | Finish:
        """Waits until the attempt is over on every host; then starts the next, or lets all go."""
        self._root = self._root or root
        self._stopped |= stopped
        self._loop.run_until(lambda: not self._running)
        everybody = len(self._guests) == self._options.nnodes - 1
        if self._root is not None and everybody and not self._stopped and self._attempts.are_left:
            return self._start(listen(self._options.master_addr or "", self._options.master_port))
        self._part({"kind": "finish", "record": None if self._root is None else asdict(self._root)})
        return Finish(self._root)

    def close(self) -> None:
        """Closes all connections."""
        for channel in (*self._strangers, *self._guests.values()):
            channel.close()
        self._strangers, self._guests = [], {}

    def _part(self, message: Message) -> None:
        """Says a last word, and gives the others time to hear it: closing first could make the system drop it."""
        self._parting = True
        channels = [*self._strangers, *self._guests.values()]
        for channel in channels:
            channel.send(message)
        late: list[bool] = []
        timer = self._loop.call_later(_PARTING_S, lambda: late.append(True))
        self._loop.run_until(lambda: bool(late) or not any(channel.is_open for channel in channels))
        timer.cancel()
        self.close()

    def _listen_by_name(self) -> socket.socket:
        """Listens on the master address; a cluster may learn this host's name a little later than it starts."""
        options = self._options
        deadline = time.monotonic() + min(options.timeout_s, _OWN_NAME_S)
        while True:
            lookup = Lookup(options.master_addr or "", options.master_port)
            while not lookup.is_done:
                self._loop.run_once(0.02)
            if lookup.address is not None or time.monotonic() > deadline:
                return listen(options.master_addr or "", options.master_port)
            self._loop.run_once(_LOOKUP_S)

    def _start(self, listener: socket.socket) -> Start:
        # The rank that inherits it shares this setting.
        listener.setblocking(True)
        run_id = self._attempts.begin()
        self._root = None
        self._running = set(self._guests)
        world_size = sum(hello["nproc"] for hello in self._hello.values())
        start = Start(self._attempts.number, run_id, 0, world_size, listener, listener.getsockname()[1])
        for node, channel in self._guests.items():
            channel.send(
                {
                    "kind": "start",
                    "attempt": start.attempt,
                    "run_id": run_id,
                    "first_rank": self._first_rank[node],
                    "world_size": world_size,
                    "master_port": start.master_port,
                }
            )
        return start

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        channel = Channel(
            self._loop,
            connection,
            self._token,
            True,
            self._options.monitor_interval_s,
            on_open=lambda _: None,
            on_message=self._on_message,
            on_lost=self._on_lost,
        )
        self._strangers.append(channel)

    def _on_message(self, channel: Channel, message: Message) -> None:
        kind = message["kind"]
        if kind == "hello":
            self._greet(channel, message)
            return
        node = self._node_of(channel)
        if node is None:
            return
        if kind == "failed":
            self._spread(FailureRecord(**message["record"]), channel)
        elif kind == "stop":
            self._stopped = True
            self._send_all(message, but=channel)
            self._hooks.on_stop(message["signal"])
        elif kind == "ended":
            self._running.discard(node)

    def _greet(self, channel: Channel, hello: Message) -> None:
        """Takes a launcher in, unless what it wants contradicts what this one wants."""
        if channel not in self._strangers:
            return
        self._strangers.remove(channel)
        node, host, nnodes = int(hello["node"]), str(hello["host"]), self._options.nnodes
        if hello["nnodes"] != nnodes:
            self._problem = f"node {node} ({host}) says --nnodes {hello['nnodes']}, node 0 says {nnodes}"
        elif node in self._hello:
            self._problem = f"--node-rank {node} was claimed twice: by {self._hello[node]['host']} and by {host}"
        elif not (0 < node < nnodes and int(hello["nproc"]) > 0):
            self._problem = f"{host} says --node-rank {node}, and there are {nnodes} nodes"
        if self._problem:
            self._strangers.append(channel)
            return
        self._hello[node], self._guests[node] = hello, channel

    def _on_lost(self, channel: Channel, reason: str) -> None:
        if self._parting:
            return
        if channel in self._strangers:
            self._strangers.remove(channel)
            if "token" in reason:
                self._hooks.say(f"turned a launcher away: {reason}")
            return
        node = self._node_of(channel)
        if node is None:
            return
        del self._guests[node]
        self._running.discard(node)
        if not self._started:
            # It may come back.
            del self._hello[node]
            return
        self._spread(lost_record(node, self._hello[node]["host"], self._first_rank[node], reason), channel)

    def _node_of(self, channel: Channel) -> int | None:
        return next((node for node, guest in self._guests.items() if guest is channel), None)

    def _spread(self, record: FailureRecord, source: Channel) -> None:
        self._root = self._root or record
        self._send_all({"kind": "failed", "record": asdict(record)}, but=source)
        self._hooks.on_failure(record)

    def _send_all(self, message: Message, but: Channel | None = None) -> None:
        for channel in self._guests.values():
            if channel is not but:
                channel.send(message)

    def _missing(self) -> str:
        n = self._options.nproc
        nodes = [node for node in range(self._options.nnodes) if node not in self._hello]
        return ", ".join(f"node {node} (ranks {node * n}-{node * n + n - 1})" for node in nodes)

    def _tell_who_is_missing(self, deadline: float) -> None:
        options = self._options
        if self._started or self._problem or len(self._hello) == options.nnodes:
            return
        left = max(0, round(deadline - time.monotonic()))
        text = f"waiting for {self._missing()} at {options.master_addr}:{options.master_port}, {left} s more"
        self._hooks.say(text)
        self._send_all({"kind": "word", "text": text})
        self._loop.call_later(_NEXT_WORD_S, lambda: self._tell_who_is_missing(deadline))

    def _give_up(self) -> None:
        options = self._options
        where = f"{options.master_addr}:{options.master_port}"
        self._problem = f"{self._missing()} did not come to {where} within {options.timeout_s:g} s (--timeout)"
