"""The launcher of any host but the first: goes to the first one, and does as it is told."""

import errno
import os
import socket
import time
from dataclasses import asdict

from ddpflow.comm.failure import FailureRecord
from ddpflow.errors import LaunchError
from ddpflow.launch.channel import Channel, Message
from ddpflow.launch.lookup import Lookup
from ddpflow.launch.loop import Loop
from ddpflow.launch.meeting import Finish, Hooks, Start, lost_record
from ddpflow.launch.options import Options

__all__ = ["OtherHost"]

_FIRST_WORD_S, _NEXT_WORD_S = 2.0, 30.0
_RETRY_S = 0.2
_CONNECT_S = 5.0


class OtherHost:
    """Any node but the first.

    Args:
        loop: Event loop.
        options: The command line.
        token: The hosts' shared secret.
        hooks: What to call.
    """

    def __init__(self, loop: Loop, options: Options, token: bytes, hooks: Hooks) -> None:
        self._loop, self._options, self._token, self._hooks = loop, options, token, hooks
        self._lookup: Lookup | None = None
        self._where = f"{options.master_addr}:{options.master_port}"
        self._connecting: socket.socket | None = None
        self._channel: Channel | None = None
        self._problem: str | None = None
        self._why_not = "no answer"
        self._started = False
        self._next: Start | Finish | None = None

    def meet(self) -> Start:
        """Goes to node 0, as often as it takes, and waits until it says start."""
        timeout_s = self._options.timeout_s
        start = time.monotonic()
        word_at = start + _FIRST_WORD_S
        retry_at = start
        while self._problem is None and self._next is None:
            now = time.monotonic()
            if now - start > timeout_s:
                self._problem = (
                    f"node 0 at {self._where} did not start within {timeout_s:g} s (--timeout): {self._why_not}"
                )
                break
            if self._channel is None and self._connecting is None and now >= retry_at:
                retry_at = now + _RETRY_S
                self._approach()
            if now >= word_at and self._channel is None:
                word_at = now + _NEXT_WORD_S
                left = timeout_s - now + start
                self._hooks.say(f"waiting for node 0 at {self._where}: {self._why_not}, {left:.0f} s more")
            self._loop.run_once(_RETRY_S)
        decision, self._next = self._next, None
        if not isinstance(decision, Start):
            self.close()
            raise LaunchError(self._problem or f"node 0 at {self._where} gave up")
        self._started = True
        return decision

    def failed(self, record: FailureRecord) -> None:
        """Tells node 0, which tells the others."""
        self._send({"kind": "failed", "record": asdict(record)})

    def stop(self, number: int) -> None:
        """Tells node 0, which tells the others."""
        self._send({"kind": "stop", "signal": number})

    def ended(self, root: FailureRecord | None, stopped: bool) -> Start | Finish:
        """Tells node 0 that this host is done, and waits for its decision."""
        self._send({"kind": "ended"})
        self._loop.run_until(lambda: self._next is not None)
        decision, self._next = self._next, None
        assert decision is not None
        return decision if isinstance(decision, Start) else Finish(decision.root or root)

    def close(self) -> None:
        """Closes the connection."""
        self._abandon()
        if self._channel is not None:
            self._channel.close()

    def _send(self, message: Message) -> None:
        if self._channel is not None:
            self._channel.send(message)

    def _approach(self) -> None:
        """Takes the next step towards node 0: asks for its address, asks again, or connects."""
        if self._lookup is None:
            self._lookup = Lookup(self._options.master_addr or "", self._options.master_port)
        elif self._lookup.address is not None:
            self._connect(*self._lookup.address)
        elif self._lookup.problem is not None:
            # A cluster may learn the name of a host only when that has started.
            self._why_not, self._lookup = self._lookup.problem, None

    def _connect(self, family: socket.AddressFamily, address: tuple[object, ...]) -> None:
        """Begins to connect; nothing here waits."""
        connection = self._connecting = socket.socket(family, socket.SOCK_STREAM)
        connection.setblocking(False)
        code = connection.connect_ex(address)
        if code not in (0, errno.EINPROGRESS):
            self._why_not = os.strerror(code)
            self._abandon()
            return
        late = self._loop.call_later(_CONNECT_S, self._abandon)

        def ready() -> None:
            late.cancel()
            self._loop.remove_writer(connection.fileno())
            code = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self._why_not = os.strerror(code)
                self._abandon()
                return
            self._connecting = None
            self._channel = Channel(
                self._loop,
                connection,
                self._token,
                False,
                self._options.monitor_interval_s,
                on_open=self._say_hello,
                on_message=self._on_message,
                on_lost=self._on_lost,
            )

        self._loop.add_writer(connection.fileno(), ready)

    def _abandon(self) -> None:
        if self._connecting is not None:
            self._loop.remove_writer(self._connecting.fileno())
            self._connecting.close()
            self._connecting = None

    def _say_hello(self, channel: Channel) -> None:
        options = self._options
        hello = {"node": options.node_rank, "nnodes": options.nnodes, "nproc": options.nproc}
        channel.send({"kind": "hello", "host": socket.gethostname(), **hello})
        self._why_not = "it waits for other nodes"

    def _on_message(self, channel: Channel, message: Message) -> None:
        kind = message["kind"]
        if kind == "start":
            names = ("attempt", "run_id", "first_rank", "world_size", "master_port")
            self._next = Start(listener=None, **{name: message[name] for name in names})
        elif kind == "finish":
            self._next = Finish(None if message["record"] is None else FailureRecord(**message["record"]))
        elif kind == "failed":
            self._hooks.on_failure(FailureRecord(**message["record"]))
        elif kind == "stop":
            self._hooks.on_stop(message["signal"])
        elif kind == "word":
            self._hooks.say(message["text"])
        elif kind == "refused":
            self._problem = message["why"]

    def _on_lost(self, channel: Channel, reason: str) -> None:
        was_in = self._why_not == "it waits for other nodes"
        self._channel = None
        if isinstance(self._next, Finish) or self._problem is not None:
            return
        if self._started:
            record = lost_record(0, str(self._options.master_addr), 0, reason)
            self._next = Finish(record)
            self._hooks.on_failure(record)
        elif "token" in reason:
            self._problem = (
                f"node 0 at {self._where} refused our token: DDPFLOW_JOB_TOKEN (or --token-file) differs there, "
                "or its job has already begun"
            )
        elif "no launcher" in reason:
            self._problem = f"what listens at {self._where} is no ddprun"
        elif was_in:
            self._problem = f"node 0 at {self._where} left before the job began: {reason}"
        else:
            self._why_not = reason
