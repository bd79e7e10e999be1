"""The help of ddprun: one screen."""

__all__ = ["HELP"]

HELP = """\
ddprun: starts the processes (ranks) of a data-parallel job, and ends them all when one fails.

  ddprun -n 2 train.py --lr 0.1                 2 ranks on this host
  ddprun -n auto -m package.train               one rank for each GPU, or each core, of a module
  ddprun --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 --master-port 29500 -n 4 train.py
                                                4 ranks on each of 2 hosts; --node-rank 1 on the other one
  ddprun --status [RUN], ddprun --stacks [RUN]  what each rank of a run does; where its Python code stands

-n, --nproc-per-node N   ranks on this host: a number, auto, cpu or gpu (1)
--nnodes N               hosts (1); --node-rank N: which one this is
--master-addr HOST, --master-port PORT, --token-file FILE (or DDPFLOW_JOB_TOKEN): where hosts meet, their secret
--timeout S              how long hosts wait for each other (300)
--standalone             one host, any free port (the default)
-m                       run a module; --no-python: run any program
--env KEY=VALUE          a variable for the ranks; may be repeated
--threads-per-rank N     BLAS threads (usable cores / ranks); --bind none|cores|numa, --numa: share cores out
--log-dir DIR            files DIR/RUN/attempt_K/RANK/{stdout,stderr}.log, beside the console
-r, --redirects 0-3      1 output, 2 errors, 3 both to files only; -t, --tee: files and console; also RANK:WHICH,...
--show-ranks RANKS       local ranks shown on the console, such as 0 or 0,2-3 (--local-ranks-filter)
--report FILE            a failure as JSON (with --log-dir also in DIR/RUN/attempt_K/error.json)
--max-restarts N         start all ranks again after a failure (0)
--grace-period S         between the request to end and SIGKILL (10)
--forward-signals NAMES  passed on to the ranks (USR1,USR2), besides INT, TERM, HUP and QUIT, which end the run
--monitor-interval S     between signs of life of the hosts (1)
--run-id NAME            name of the run (random)

Each flag can also be set as DDPRUN_<NAME>, such as DDPRUN_NPROC_PER_NODE=2. Exit code: 0, the code of the rank that
failed first (128 + n for signal n), or 2 when nothing was started.
"""
