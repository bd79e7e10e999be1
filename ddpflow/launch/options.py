"""The command line of ddprun: a table of flags, each also read from DDPRUN_<NAME>, and the checks on their values."""

import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ddpflow.errors import ConfigError
from ddpflow.launch.resources import count_gpus, usable_cores
from ddpflow.launch.rundir import check_run_id

__all__ = ["FLAGS", "Flag", "Options", "parse"]


@dataclass(frozen=True)
class Flag:
    """One flag.

    Attributes:
        name: Long name without dashes.
        value: What its value is called in the help, or "" for a switch.
        default: Its value where neither command line nor environment has one.
        short: One-letter form without dash, or "".
    """

    name: str
    value: str = ""
    default: str = ""
    short: str = ""


FLAGS = (
    Flag("nproc-per-node", "N", "1", "n"),
    Flag("nnodes", "N", "1"),
    Flag("node-rank", "N"),
    Flag("master-addr", "HOST"),
    Flag("master-port", "PORT"),
    Flag("standalone"),
    Flag("token-file", "FILE"),
    Flag("timeout", "S", "300"),
    Flag("module", short="m"),
    Flag("no-python"),
    Flag("env", "KEY=VALUE"),
    Flag("threads-per-rank", "N"),
    Flag("bind", "none|cores|numa", "none"),
    Flag("numa"),
    Flag("log-dir", "DIR"),
    Flag("redirects", "0-3", "0", "r"),
    Flag("tee", "0-3", "0", "t"),
    Flag("show-ranks", "RANKS"),
    Flag("max-restarts", "N", "0"),
    Flag("grace-period", "S", "10"),
    Flag("forward-signals", "NAMES", "USR1,USR2"),
    Flag("monitor-interval", "S", "1"),
    Flag("run-id", "NAME"),
    Flag("report", "FILE"),
    Flag("status"),
    Flag("stacks"),
    Flag("help", short="h"),
)
_ALIASES = {"local-ranks-filter": "show-ranks"}
_STOPPING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGKILL, signal.SIGSTOP})


@dataclass(frozen=True)
class Options:
    """What one call of ddprun was asked to do; see ``ddprun --help`` for the flags behind the fields.

    Attributes:
        action: "run", "help", "status" or "stacks".
        kind: "script", "module" or "command".
        target: Script, module, program, or the run that ``status`` and ``stacks`` ask about ("" for the only one).
        arguments: What the target gets.
        nproc: Number of ranks on this host.
        standalone: Whether one host was asked for, whatever the environment says.
        nnodes: Number of hosts.
        node_rank: Number of this host, or None where it was not said.
        master_addr: Address of the first host, or None where it was not said.
        master_port: Port on it; 0 for any.
        token_file: File with the shared secret, or None.
        timeout_s: How long hosts wait for each other.
        extra_env: Variables for the ranks.
        threads: BLAS threads of each rank, or None for a fair share.
        bind: How cores are shared out: "none", "cores" or "numa".
        log_dir: Folder for log files, or None.
        redirects: Local rank to streams (1 output, 2 error, 3 both) that go to files only; -1 stands for all others.
        tee: The same for streams that go to files and the console.
        show_ranks: Local ranks whose output is shown, or None for all.
        max_restarts: How often the whole gang is started again after a failure.
        grace_period_s: Time between the request to end and SIGKILL.
        forward_signals: Signals passed on to the ranks, in addition to those that end the run.
        monitor_interval_s: Time between two signs of life between hosts.
        run_id: Name of the run, or "" for a random one.
        report: File for a report on a failure, in JSON, or None.
    """

    action: str = "run"
    kind: str = "script"
    target: str = ""
    arguments: tuple[str, ...] = ()
    nproc: int = 1
    standalone: bool = False
    nnodes: int = 1
    node_rank: int | None = None
    master_addr: str | None = None
    master_port: int = 0
    token_file: str | None = None
    timeout_s: float = 300.0
    extra_env: Mapping[str, str] = field(default_factory=dict)
    threads: int | None = None
    bind: str = "none"
    log_dir: str | None = None
    redirects: Mapping[int, int] = field(default_factory=dict)
    tee: Mapping[int, int] = field(default_factory=dict)
    show_ranks: frozenset[int] | None = None
    max_restarts: int = 0
    grace_period_s: float = 10.0
    forward_signals: tuple[int, ...] = (signal.SIGUSR1, signal.SIGUSR2)
    monitor_interval_s: float = 1.0
    run_id: str = ""
    report: str | None = None


def parse(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> Options:
    """Reads the command line.

    Args:
        argv: Arguments without the program's name.
        environ: Where DDPRUN_<NAME> and, for the number of GPUs, CUDA_VISIBLE_DEVICES are looked up.

    Raises:
        ConfigError: A flag is unknown, or a value makes no sense; one line that names it.
    """
    given, rest = _split(list(argv))
    values = _Values(given, environ)
    if values.switch("help"):
        return Options(action="help")
    for action in ("status", "stacks"):
        if action in given:
            return Options(action=action, target=rest[0] if rest else "")
    if not rest:
        raise ConfigError("which script? Usage: ddprun [flags] script.py [its arguments]; see ddprun --help")
    if values.switch("module") and values.switch("no-python"):
        raise ConfigError("-m runs a Python module, --no-python runs a program: give one of them")
    nnodes = _nodes(values)
    nproc = _processes(values.text("nproc-per-node"), environ)
    log_dir = values.text("log-dir") or None
    redirects, tee = _streams(values, "redirects"), _streams(values, "tee")
    if (any(redirects.values()) or any(tee.values())) and not log_dir:
        raise ConfigError("--redirects and --tee write files: say where with --log-dir DIR")
    if log_dir and "redirects" not in values and "tee" not in values:
        tee = {-1: 3}
    port = values.integer("master-port", 0, 65535)
    node_rank = values.integer("node-rank", 0, nnodes - 1)
    if values.switch("standalone"):
        if nnodes > 1:
            raise ConfigError(f"--standalone is for one node, and --nnodes says {nnodes}")
        port = 0
    return Options(
        kind="module" if values.switch("module") else "command" if values.switch("no-python") else "script",
        target=rest[0],
        arguments=tuple(rest[1:]),
        nproc=nproc,
        standalone=values.switch("standalone"),
        nnodes=nnodes,
        node_rank=node_rank,
        master_addr=values.text("master-addr") or None,
        master_port=port or 0,
        token_file=values.text("token-file") or None,
        timeout_s=values.seconds("timeout"),
        extra_env=dict(_assignment(text) for text in values.all("env")),
        threads=values.integer("threads-per-rank", 1),
        bind="numa" if values.switch("numa") else values.choice("bind", ("none", "cores", "numa")),
        log_dir=log_dir,
        redirects=redirects,
        tee=tee,
        show_ranks=_rank_set(values.text("show-ranks"), nproc),
        max_restarts=values.integer("max-restarts", 0) or 0,
        grace_period_s=values.seconds("grace-period", zero=True),
        forward_signals=_signals(values.text("forward-signals")),
        monitor_interval_s=values.seconds("monitor-interval"),
        run_id=_run_id(values.text("run-id")),
        report=values.text("report") or None,
    )


def _split(argv: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Separates ddprun's flags from the script and its arguments, which start at the first word that is no flag."""
    by_name = {flag.name: flag for flag in FLAGS} | {alias: _flag(name) for alias, name in _ALIASES.items()}
    by_short = {flag.short: flag for flag in FLAGS if flag.short}
    given: dict[str, list[str]] = {}
    while argv and argv[0].startswith("-") and argv[0] != "-":
        word = argv.pop(0)
        if word == "--":
            break
        name, equals, value = word.lstrip("-").partition("=")
        flag = by_name.get(name.replace("_", "-")) if word.startswith("--") else by_short.get(name)
        if flag is None:
            raise ConfigError(f"unknown flag {word.partition('=')[0]}{_suggestion(name, by_name)}; see ddprun --help")
        if not flag.value and equals:
            raise ConfigError(f"--{flag.name} takes no value")
        if flag.value and not equals:
            if not argv:
                raise ConfigError(f"--{flag.name} needs a value: {flag.value}")
            value = argv.pop(0)
        given.setdefault(flag.name, []).append(value if flag.value else "1")
    return given, argv


def _flag(name: str) -> Flag:
    return next(flag for flag in FLAGS if flag.name == name)


def _suggestion(name: str, known: Mapping[str, object]) -> str:
    wanted = name.replace("_", "-")
    best = max(known, key=lambda candidate: len(os.path.commonprefix([candidate, wanted])))
    return f" (did you mean --{best}?)" if len(os.path.commonprefix([best, wanted])) >= 3 else ""


class _Values:
    """The flags' values: from the command line, else from DDPRUN_<NAME>, else the default."""

    def __init__(self, given: Mapping[str, list[str]], environ: Mapping[str, str]) -> None:
        self._values = dict(given)
        for flag in FLAGS:
            variable = "DDPRUN_" + flag.name.replace("-", "_").upper()
            if flag.name not in given and environ.get(variable) and flag.name not in ("help", "status", "stacks"):
                self._values[flag.name] = [environ[variable]]

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def all(self, name: str) -> list[str]:
        """Returns every value given."""
        return self._values.get(name, [])

    def text(self, name: str) -> str:
        """Returns the last value given."""
        return self._values.get(name, [_flag(name).default])[-1]

    def switch(self, name: str) -> bool:
        """Returns whether a switch is on."""
        return self.text(name).lower() not in ("", "0", "false", "no", "off")

    def choice(self, name: str, choices: Sequence[str]) -> str:
        """Returns one of ``choices``."""
        if self.text(name) not in choices:
            raise ConfigError(f"--{name} {self.text(name)!r} must be one of {', '.join(choices)}")
        return self.text(name)

    def integer(self, name: str, low: int, high: int | None = None) -> int | None:
        """Returns an integer within [low, high], or None where there is no value."""
        text = self.text(name)
        if not text:
            return None
        if not text.isascii() or not text.isdigit() or not low <= int(text) <= (int(text) if high is None else high):
            span = f"at least {low}" if high is None else f"between {low} and {high}"
            raise ConfigError(f"--{name} {text!r} must be an integer, {span}")
        return int(text)

    def seconds(self, name: str, zero: bool = False) -> float:
        """Returns a number of seconds, positive or, if allowed, zero."""
        text = self.text(name)
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not (0 < value < 1e9 or zero and value == 0):
            raise ConfigError(f"--{name} {text!r} must be a {'' if zero else 'positive '}number of seconds")
        return value


def _nodes(values: _Values) -> int:
    low, colon, high = values.text("nnodes").partition(":")
    if colon and low != high:
        raise ConfigError(f"--nnodes {low}:{high} asks for an elastic job, which ddprun does not do: give one number")
    if not low.isascii() or not low.isdigit() or int(low) < 1:
        raise ConfigError(f"--nnodes {values.text('nnodes')!r} must be an integer, at least 1")
    return int(low)


def _processes(text: str, environ: Mapping[str, str]) -> int:
    if text in ("auto", "gpu"):
        gpus = count_gpus(environ.get("CUDA_VISIBLE_DEVICES"))
        if text == "gpu" and not gpus:
            raise ConfigError("--nproc-per-node gpu: this host shows no NVIDIA GPU")
        return gpus or usable_cores()
    if text == "cpu":
        return usable_cores()
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 65536:
        raise ConfigError(f"--nproc-per-node {text!r} must be an integer, at least 1, or auto, cpu or gpu")
    return int(text)


def _streams(values: _Values, name: str) -> dict[int, int]:
    """Reads torchrun's "3" (all ranks) or "0:1,2:3" (local rank : streams)."""
    text = values.text(name)
    chosen = {}
    for part in text.split(","):
        rank, colon, which = part.rpartition(":")
        if which not in ("0", "1", "2", "3") or colon and not rank.isdigit():
            raise ConfigError(f"--{name} {text!r} must be 0 to 3 (1 output, 2 errors, 3 both), or RANK:WHICH,...")
        chosen[int(rank) if colon else -1] = int(which)
    return chosen


def _rank_set(text: str, nproc: int) -> frozenset[int] | None:
    if not text:
        return None
    ranks: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.partition("-")
        if not low.isdigit() or dash and not high.isdigit() or int(high or low) >= nproc:
            raise ConfigError(f"--show-ranks {text!r} must name local ranks below {nproc}, such as 0 or 0,2-3")
        ranks.update(range(int(low), int(high or low) + 1))
    return frozenset(ranks)


def _assignment(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise ConfigError(f"--env {text!r} must be KEY=VALUE")
    return key, value


def _signals(text: str) -> tuple[int, ...]:
    numbers = []
    for name in filter(None, text.split(",")):
        number = getattr(signal, "SIG" + name.strip().upper().removeprefix("SIG"), None)
        if not isinstance(number, signal.Signals) or number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD):
            raise ConfigError(f"--forward-signals {text!r}: {name.strip()!r} is not a signal that can be passed on")
        if number not in _STOPPING:
            numbers.append(int(number))
    return tuple(numbers)


def _run_id(text: str) -> str:
    return check_run_id(text) if text else ""
