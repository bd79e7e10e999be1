"""The command line: both spellings, the environment, and one clear line for each mistake."""

import signal

import pytest

from ddpflow.errors import ConfigError, LaunchError
from ddpflow.launch.helptext import HELP
from ddpflow.launch.options import FLAGS, parse
from ddpflow.launch.resources import usable_cores


def test_script_and_its_arguments():
    """What follows the script is the script's, flags that look like ours among it."""
    options = parse(["-n", "2", "train.py", "--nnodes", "5", "-m", "--", "x"], {})
    assert (options.kind, options.target) == ("script", "train.py")
    assert options.arguments == ("--nnodes", "5", "-m", "--", "x")
    assert (options.nproc, options.nnodes) == (2, 1)


@pytest.mark.parametrize(
    "argv",
    [
        ["--nproc-per-node", "3", "s.py"],
        ["--nproc_per_node=3", "s.py"],
        ["--nproc-per-node=3", "--", "s.py"],
        ["-n", "3", "s.py"],
    ],
)
def test_both_spellings(argv):
    """Dashes, underscores, a separate value or one after an equals sign: all the same."""
    assert parse(argv, {}) == parse(["--nproc_per_node", "3", "s.py"], {})


def test_every_flag_from_the_environment():
    """DDPRUN_<NAME> stands for each flag; the command line wins over it."""
    environ = {
        "DDPRUN_NPROC_PER_NODE": "4",
        "DDPRUN_MAX_RESTARTS": "3",
        "DDPRUN_NO_PYTHON": "1",
        "DDPRUN_GRACE_PERIOD": "0",
        "DDPRUN_TEE": "",
    }
    options = parse(["--max-restarts", "1", "prog"], environ)
    assert (options.nproc, options.max_restarts, options.kind) == (4, 1, "command")
    assert options.grace_period_s == 0


def test_values():
    """Streams, ranks, signals, variables and repeated flags are read."""
    flags = "--redirects 0:1,2:3 --tee 3 --log-dir d --show-ranks 0,2-3 --forward-signals SIGUSR1,winch,TERM -n 4"
    options = parse([*flags.split(), "--env", "A=1", "--env", "B=x=y", "--nnodes", "2:2", "s.py"], {})
    assert options.redirects == {0: 1, 2: 3} and options.tee == {-1: 3}
    assert options.show_ranks == {0, 2, 3}
    assert options.forward_signals == (signal.SIGUSR1, signal.SIGWINCH)
    assert options.extra_env == {"A": "1", "B": "x=y"}
    assert options.nnodes == 2
    assert parse(["--log-dir", "d", "s.py"], {}).tee == {-1: 3}


def test_automatic_counts():
    """`cpu` and, without a GPU, `auto` stand for the usable cores."""
    assert parse(["-n", "cpu", "s.py"], {}).nproc == usable_cores()
    assert parse(["-n", "auto", "s.py"], {"CUDA_VISIBLE_DEVICES": ""}).nproc == usable_cores()
    with pytest.raises(ConfigError, match="shows no NVIDIA GPU"):
        parse(["-n", "gpu", "s.py"], {"CUDA_VISIBLE_DEVICES": ""})


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("", "which script"),
        ("-n 2", "which script"),
        ("--nproc-per-nod 2 s.py", r"unknown flag --nproc-per-nod \(did you mean --nproc-per-node\?\)"),
        ("--frobnicate s.py", "unknown flag --frobnicate; see"),
        ("-x s.py", "unknown flag -x"),
        ("-n 0 s.py", "--nproc-per-node '0' must be an integer, at least 1"),
        ("-n -3 s.py", "--nproc-per-node '-3'"),
        ("-n 2.5 s.py", "--nproc-per-node '2.5'"),
        ("-n many s.py", "or auto, cpu or gpu"),
        ("--nnodes 0 s.py", "--nnodes '0'"),
        ("--nnodes 1:4 s.py", "elastic"),
        ("--nnodes 2 --node-rank 2 s.py", "--node-rank '2' must be an integer, between 0 and 1"),
        ("--standalone --nnodes 2 s.py", "--standalone is for one node"),
        ("--master-port 65536 s.py", "--master-port '65536'"),
        ("--timeout 0 s.py", "--timeout '0' must be a positive number"),
        ("--grace-period soon s.py", "--grace-period 'soon'"),
        ("--tee 4 --log-dir d s.py", "--tee '4' must be 0 to 3"),
        ("--redirects 3 s.py", "say where with --log-dir"),
        ("--show-ranks 2 -n 2 s.py", "local ranks below 2"),
        ("--forward-signals KILL s.py", "not a signal that can be passed on"),
        ("--env A s.py", "must be KEY=VALUE"),
        ("--bind socket s.py", "must be one of none, cores, numa"),
        ("-m --no-python s.py", "give one of them"),
        ("--standalone=1 s.py", "takes no value"),
        ("--log-dir", "--log-dir needs a value: DIR"),
        ("--threads-per-rank 0 s.py", "--threads-per-rank '0'"),
    ],
)
def test_mistakes(argv, message):
    """Each mistake is one line that names the flag and the value."""
    with pytest.raises(ConfigError, match=message) as caught:
        parse(argv.split(), {})
    assert "\n" not in str(caught.value)


def test_run_id_can_name_a_folder():
    """A run id is a plain name."""
    assert parse(["--run-id", "exp-3.b", "s.py"], {}).run_id == "exp-3.b"
    with pytest.raises(LaunchError, match="run id '../x'"):
        parse(["--run-id", "../x", "s.py"], {})


def test_help_fits_a_screen_and_knows_every_flag():
    """The help has at most 40 lines of at most 120 characters, with examples, and no flag is missing."""
    lines = HELP.splitlines()
    assert len(lines) <= 40 and max(map(len, lines)) <= 120
    assert HELP.count("  ddprun ") >= 3
    assert [flag.name for flag in FLAGS if f"--{flag.name}" not in HELP and flag.name not in ("module", "help")] == []
    assert parse(["-h"], {}).action == parse(["--help"], {}).action == "help"
