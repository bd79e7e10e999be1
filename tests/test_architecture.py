"""The plan of the house, checked: who may import whom, what may be big, what must be tested, what must stay light."""

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "ddpflow"

# The floors, lowest first. A file imports only from floors below its own, or from its own without a cycle.
# Names are module names without the leading "ddpflow."; a file belongs to the first pattern that fits.
FLOORS: list[tuple[str, ...]] = [
    ("capture", "errors", "dtype", "device", "memory", "pinned", "precision"),
    ("random", "comm.env", "comm.failure", "comm.progress"),
    (
        "autograd.mode",
        "autograd.quiet",
        "autograd.zeros",
        "autograd.base",
        "autograd.node",
        "autograd.passes",
        "autograd.promotion",
        "autograd.saved",
    ),
    (
        "autograd.autocast",
        "autograd.views",
        "autograd.anomaly",
        "autograd.calling",
        "autograd.dispatch",
        "autograd.higher",
        "autograd.shortcuts",
        "autograd.surroundings",
    ),
    ("autograd.engine", "autograd.op", "autograd.printing"),
    ("autograd.kernels", "autograd.kernels.*"),
    ("autograd.ops", "autograd.ops.*"),
    ("autograd.inference", "autograd.inplace", "autograd.namespace"),
    ("autograd.conversion", "autograd.inplace_methods", "autograd.shape_methods", "autograd.tensor_methods"),
    ("autograd.tensor",),
    ("autograd", "autograd.*"),
    ("comm.work", "comm.reduce", "comm.wire"),
    ("comm.signature", "comm.store", "comm.store_server", "comm.tcp_store", "comm.file_store"),
    ("comm.backend",),
    ("comm.backends", "comm.backends.*", "comm.registry"),
    ("comm.layout", "comm.group_base", "comm.group_copies", "comm.group", "comm.exits"),
    ("comm.rendezvous", "comm.world"),
    ("comm.default", "comm.subgroups", "comm.collectives", "comm.monitored"),
    ("comm", "comm.*"),
    ("compat", "draws", "factories", "linalg", "serialization", "threads", "typed", "windows"),
    ("accelerator", "amp", "amp.*", "backends", "cuda", "cuda.*", "distributions"),
    ("nn.parameter",),
    ("nn.hooks", "nn.placement", "nn.state"),
    ("nn.module",),
    ("nn.init", "nn.functional", "nn.functional.*", "nn.modules", "nn.modules.*", "nn.utils", "nn.utils.*"),
    ("optim", "optim.*", "utils", "utils.*"),
    ("nn.parallel", "nn.parallel.*"),
    ("nn",),
    ("launch", "launch.*", "multiprocessing", "testing", "testing.*"),
    ("",),
]

# Walls within and between floors: a room on the left imports nothing of ddpflow but what is on the right.
GROUND = ("capture", "errors", "dtype", "device")
WALLS: dict[str, tuple[str, ...]] = {
    "comm.env": ("errors",),
    "comm.failure": ("errors",),
    "comm": (*GROUND, "comm"),
    "launch": ("errors", "comm.env", "comm.failure", "comm.progress", "comm.wire", "launch"),
    # Gradient rules work on raw arrays: they know no Tensor and no engine.
    "autograd.kernels": (*GROUND, "autograd.kernels"),
    "autograd.ops": (
        *(*GROUND, "random", "autograd.autocast", "autograd.op", "autograd.zeros"),
        *("autograd.kernels", "autograd.ops"),
    ),
    "autograd": (*GROUND, "random", "autograd"),
    "factories": (*GROUND, "random", "autograd"),
    "serialization": (*GROUND, "autograd"),
    "optim": (*GROUND, "autograd", "comm", "factories", "nn.parameter", "optim"),
    "nn.parallel": (*GROUND, "autograd", "comm", "factories", "nn"),
    "nn": (*GROUND, "random", "autograd", "factories", "nn"),
}

OPTIONAL_PACKAGES = {"cupy", "cupyx", "mpi4py", "ml_dtypes", "safetensors"}
# What `import ddpflow` must not load: optional packages, and parts of the standard library that take long.
HEAVY = OPTIONAL_PACKAGES | {"torch", "tqdm", "sklearn", "scipy", "pytest", "hypothesis"}
HEAVY |= {"multiprocessing", "concurrent", "asyncio", "unittest", "http", "email", "sqlite3", "xml"}

MAX_LINES = 450
MAX_EXAMPLE_LINES = 200
HOOK_TO_ALL_REDUCE = (
    "nn/parallel/reducer.py",
    "nn/parallel/bucket.py",
    "nn/parallel/comm_hooks.py",
    "comm/group.py",
    "comm/backends/shm.py",
)
MAX_PATH_LINES = 900

# Source files whose tests stand elsewhere than in the mirrored place, and where.
TESTED_ELSEWHERE: dict[str, str] = {
    "autograd/inplace_methods.py": "tests/autograd/test_inplace.py",
    "autograd/shape_methods.py": "tests/autograd/ops/test_shape.py",
    **{
        f"optim/lr_scheduler/{name}.py": "tests/optim/lr_scheduler/test_lr_scheduler.py"
        for name in ("base", "combined", "cosine", "cycles", "factors", "plateau")
    },
    "launch/channel.py": "tests/launch/test_hosts.py",
    "launch/first_host.py": "tests/launch/test_hosts.py",
    "launch/helptext.py": "tests/launch/test_options.py",
    "launch/meeting.py": "tests/launch/test_hosts.py",
    "launch/other_host.py": "tests/launch/test_hosts.py",
    "launch/rank.py": "tests/launch/test_supervisor.py",
    "launch/spawned.py": "tests/launch/test_spawning.py",
    "launch/starter.py": "tests/launch/test_supervisor.py",
}


@dataclass(frozen=True)
class Module:
    """One source file: its name without "ddpflow.", its path and its syntax tree."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        """Whether the file is an __init__.py."""
        return self.path.name == "__init__.py"


@dataclass(frozen=True)
class Import:
    """One import statement's target within ddpflow, as a module name without "ddpflow." ("" is the face)."""

    target: str
    names: tuple[str, ...]
    line: int


@cache
def modules() -> dict[str, Module]:
    """Returns every source file of ddpflow by name."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = Module(name, path, ast.parse(path.read_text(), str(path)))
    return found


def is_type_checking(node: ast.AST) -> bool:
    """Returns whether `node` is `if TYPE_CHECKING:`, whose imports never run."""
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def running(node: ast.AST) -> Iterator[ast.AST]:
    """Yields the nodes below `node` that can run, in order."""
    for child in ast.iter_child_nodes(node):
        if is_type_checking(child):
            for other in child.orelse:
                yield other
                yield from running(other)
        else:
            yield child
            yield from running(child)


@cache
def all_imports() -> dict[str, list[Import]]:
    """Returns the imports of ddpflow's own modules that run, hidden in functions or not, for each module by name."""
    return {name: list(imports(module)) for name, module in modules().items()}


def imports(module: Module) -> Iterator[Import]:
    """Yields the imports of one module."""
    for node in running(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "ddpflow":
                    yield Import(alias.name[len("ddpflow.") :], (), node.lineno)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "ddpflow":
            base = node.module[len("ddpflow.") :]
            plain = []
            for alias in node.names:
                submodule = f"{base}.{alias.name}".lstrip(".")
                if submodule in modules():
                    yield Import(submodule, (), node.lineno)
                else:
                    plain.append(alias.name)
            if plain:
                yield Import(base, tuple(plain), node.lineno)


def floor(name: str) -> int:
    """Returns the floor of a module: exact names win over patterns."""
    for wanted in (lambda pattern: pattern == name, lambda pattern: fnmatchcase(name, pattern)):
        for number, patterns in enumerate(FLOORS):
            if any(map(wanted, patterns)):
                return number
    raise AssertionError(f"ddpflow.{name} has no floor: give it a row in FLOORS")


def within(name: str, rooms: tuple[str, ...]) -> bool:
    """Returns whether a module is one of the rooms or lies inside one."""
    return any(name == room or name.startswith(room + ".") for room in rooms)


def report(problems: list[str]) -> None:
    """Fails with one problem a line."""
    assert not problems, "\n" + "\n".join(problems)


def test_imports_point_down():
    """A file imports only from floors below it, or from its own."""
    report(
        [
            f"{module.path.relative_to(ROOT)}:{found.line}: imports ddpflow.{found.target}, which is on a higher floor"
            for module in modules().values()
            for found in all_imports()[module.name]
            if floor(found.target) > floor(module.name)
        ]
    )


def test_walls():
    """A room imports only what the table of walls lets in; the narrowest rule that fits a file holds."""
    problems = []
    for module in modules().values():
        rooms = [room for room in WALLS if within(module.name, (room,))]
        if not rooms:
            continue
        allowed = WALLS[max(rooms, key=len)]
        problems += [
            f"{module.path.relative_to(ROOT)}:{found.line}: may not import ddpflow.{found.target}"
            for found in all_imports()[module.name]
            if not within(found.target, allowed)
        ]
    report(problems)


def test_no_cycles():
    """Following imports from any file never leads back to it."""
    edges = {name: sorted({found.target for found in all_imports()[module.name]}) for name, module in modules().items()}
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> None:
        if name in path:
            raise AssertionError("import cycle: " + " -> ".join([*path[path.index(name) :], name]))
        if name not in done:
            for target in edges.get(name, []):
                visit(target, [*path, name])
            done.add(name)

    for name in edges:
        visit(name, [])


def test_imports_name_the_defining_file():
    """Inside ddpflow nobody imports the face, a package's re-export, or a name that its module only imported."""
    problems = []
    for module in modules().values():
        for found in all_imports()[module.name]:
            where = f"{module.path.relative_to(ROOT)}:{found.line}"
            target = modules().get(found.target)
            if target is None:
                problems.append(f"{where}: there is no module ddpflow.{found.target}")
            elif found.target == "":
                problems.append(f"{where}: imports ddpflow itself")
            else:
                borrowed = imported_names(target)
                problems += [
                    f"{where}: ddpflow.{found.target} only imports {name}; name the file that defines it"
                    for name in found.names
                    if name in borrowed and not module.is_package
                ]
    report(problems)


def imported_names(module: Module) -> set[str]:
    """Returns the names that a module binds at its top level by an import from ddpflow, and in no other way."""
    borrowed = {
        alias.asname or alias.name
        for node in module.tree.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ddpflow"
        for alias in node.names
    }
    return borrowed - set(definitions(module))


def definitions(module: Module) -> Iterator[str]:
    """Yields the names that a module's top level defines: functions, classes and assigned names."""
    for node in module.tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                yield from (part.id for part in ast.walk(target) if isinstance(part, ast.Name))


def test_no_hidden_imports():
    """A function imports nothing but optional packages; everything else stands at the top of its file."""
    problems = []
    for module in modules().values():
        for function in ast.walk(module.tree):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for node in ast.walk(function):
                if isinstance(node, ast.Import):
                    roots = {alias.name.split(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom):
                    roots = {(node.module or "").split(".")[0]}
                else:
                    continue
                if hidden := sorted(roots - OPTIONAL_PACKAGES):
                    problems.append(f"{module.path.relative_to(ROOT)}:{node.lineno}: hides import of {hidden}")
    report(problems)


def test_light_import():
    """`import ddpflow` loads no optional package and nothing slow of the standard library that NumPy does not load."""
    script = "import sys, numpy; before = set(sys.modules); import ddpflow; print(*sorted(set(sys.modules) - before))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 0, result.stderr
    assert not {name.split(".")[0] for name in result.stdout.split()} & HEAVY


@pytest.mark.parametrize("name", sorted(modules()))
def test_all_matches(name):
    """`__all__` names what exists, each once, and holds every function and class that another file takes from here."""
    module = modules()[name]
    if module.path.name == "__main__.py" or needs_optional_package(module):
        return
    taken = {
        wanted
        for other in modules().values()
        for found in all_imports()[other.name]
        if found.target == name and found.names
        for wanted in found.names
    }
    assert [wanted for wanted in sorted(taken) if wanted.startswith("_")] == [], "private, but used by another file"
    has_all = "__all__" in definitions(module)
    if not has_all and set(definitions(module)) == set() and imported_names(module) == set():
        return  # a package's __init__.py that only says what the package is
    assert has_all, f"{module.path.relative_to(ROOT)} has no __all__"
    imported = importlib.import_module(f"ddpflow.{name}".rstrip("."))
    listed = list(imported.__all__)
    assert len(set(listed)) == len(listed), "a name is listed twice"
    assert [entry for entry in listed if not hasattr(imported, entry)] == []
    taken &= {node.name for node in module.tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assert sorted(taken - set(listed)) == [], "used by another file, but not in __all__"


def needs_optional_package(module: Module) -> bool:
    """Returns whether a file cannot be imported without an optional package."""
    return any(
        isinstance(node, ast.Import)
        and {alias.name.split(".")[0] for alias in node.names} & OPTIONAL_PACKAGES
        or isinstance(node, ast.ImportFrom)
        and (node.module or "").split(".")[0] in OPTIONAL_PACKAGES
        for node in module.tree.body
    )


def test_file_sizes():
    """No file grows past the ceiling: one that does wants to be two."""
    limits = {"ddpflow": MAX_LINES, "tests": MAX_LINES, "benchmarks": MAX_LINES, "examples": MAX_EXAMPLE_LINES}
    problems = []
    for folder, limit in limits.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            lines = len(path.read_text().splitlines())
            if lines > limit:
                problems.append(f"{path.relative_to(ROOT)}: {lines} lines, at most {limit}")
    report(problems)


def test_hook_to_all_reduce_is_short():
    """A newcomer reads the whole way from a parameter's hook to the all-reduce in five files and 900 lines."""
    assert len(HOOK_TO_ALL_REDUCE) <= 5
    lines = {name: len((SOURCE / name).read_text().splitlines()) for name in HOOK_TO_ALL_REDUCE}
    assert sum(lines.values()) <= MAX_PATH_LINES, lines


def test_every_source_file_has_a_test_file():
    """ddpflow/a/b.py is tested by tests/a/test_b.py."""
    problems = []
    for module in modules().values():
        if module.path.name in ("__init__.py", "__main__.py"):
            continue
        source = module.path.relative_to(SOURCE)
        expected = TESTED_ELSEWHERE.get(source.as_posix(), f"tests/{source.parent.as_posix()}/test_{source.name}")
        if not (ROOT / expected).is_file():
            problems.append(f"ddpflow/{source} has no {Path(expected).as_posix()}")
    report(problems)
