"""Measure the package as a house: its rooms, the arrows between them, its floors, and what an import brings along.

    python tools/ground_plan.py [SRC]

A room is a folder or file right below `headstart`. An arrow leads from a room to another one that a file of it imports,
annotations included. A room stands one floor above the highest room that it imports. The closure of a module is all
that is imported with it, at run time: imports for annotations (`TYPE_CHECKING`) and those inside of functions are left
out. A walk is the functions that a parameter reaches by being handed on under its name, from call to call; calls of
methods on other objects are not followed. tests/test_ground_plan.py holds the limits.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

PACKAGE = "headstart"


@dataclass(frozen=True)
class House:
    """The package below a folder of sources."""

    source: Path

    @cached_property
    def files(self) -> dict[str, Path]:
        """By the name of each module, its file."""
        found = {}
        for file in sorted((self.source / PACKAGE).rglob("*.py")):
            parts = file.relative_to(self.source).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
        return found

    @cached_property
    def lines(self) -> dict[str, int]:
        """By module, the lines of its file."""
        return {name: len(file.read_text(encoding="utf-8").splitlines()) for name, file in self.files.items()}

    @cached_property
    def imports(self) -> dict[str, tuple[frozenset[str], frozenset[str]]]:
        """By module, the modules of the package that it names in imports anywhere, and those imported with it."""
        return {
            name: (self._imports(name, at_run_time=False), self._imports(name, at_run_time=True)) for name in self.files
        }

    def _imports(self, name: str, *, at_run_time: bool) -> frozenset[str]:
        found: set[str] = set()

        def visit(node: ast.AST) -> None:
            if at_run_time and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
                return
            if at_run_time and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                return
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    found.add(whole if whole in self.files else node.module)
            for child in ast.iter_child_nodes(node):
                visit(child)

        visit(ast.parse(self.files[name].read_text(encoding="utf-8")))
        return frozenset(found & self.files.keys())

    @staticmethod
    def room(name: str) -> str:
        """The room of a module; "" for the package's own face."""
        return name.split(".")[1] if "." in name else ""

    @cached_property
    def rooms(self) -> Counter[str]:
        """Lines by room."""
        found: Counter[str] = Counter()
        for name, lines in self.lines.items():
            if (room := self.room(name)) not in ("", "__main__"):
                found[room] += lines
        return found

    @cached_property
    def arrows(self) -> frozenset[tuple[str, str]]:
        """(room, room that it imports)."""
        pairs = {(self.room(name), self.room(other)) for name, (all_, _) in self.imports.items() for other in all_}
        return frozenset((a, b) for a, b in pairs if a != b and {a, b} <= self.rooms.keys())

    @cached_property
    def floors(self) -> dict[str, int]:
        """By room, its floor, from 1; 0 for rooms in a circle."""
        found: dict[str, int] = {}
        while True:
            below = {room: {b for a, b in self.arrows if a == room} for room in self.rooms if room not in found}
            ready = {
                room: 1 + max((found[b] for b in under), default=0)
                for room, under in below.items()
                if under <= found.keys()
            }
            if not ready:
                return found | dict.fromkeys(below, 0)
            found |= ready

    def closure(self, name: str) -> frozenset[str]:
        """All modules that are imported with one, at run time."""
        found: set[str] = set()
        open_ = [name]
        while open_:
            if (module := open_.pop()) in found:
                continue
            found.add(module)
            parts = module.split(".")
            open_ += [each for end in range(1, len(parts)) if (each := ".".join(parts[:end])) in self.files]
            open_ += self.imports[module][1]
        return frozenset(found)

    def weight(self, names: frozenset[str]) -> int:
        """The lines of some modules."""
        return sum(self.lines[name] for name in names)

    @cached_property
    def loaded(self) -> frozenset[str]:
        """The modules of the package in a process that loaded the bundled model and generated with it. It runs."""
        program = (
            f"import sys, {PACKAGE} as hs\nhs.load().generate('def add', hs.Sampling(max_tokens=8))\n"
            f"print(*(name for name in sys.modules if name.partition('.')[0] == {PACKAGE!r}))"
        )
        environment = os.environ | {"PYTHONPATH": str(self.source)}
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
        if done.returncode:
            raise SystemExit(done.stderr)
        return frozenset(done.stdout.split()) & self.files.keys()

    def constants(self, room: str) -> list[str]:
        """The numbers of a room's files that somebody chose, by name, each as `file: name`.

        Counted are the names of modules and classes (the fields of a dataclass among them) whose value holds a number,
        a table of numbers as one, and every number that stands in a function without a name. What is computed from
        other constants with no numbers but 0, 1 and 2 is not chosen but follows. In classes and functions these are no
        choice either, since they count, begin, halve and double; nor is a nanosecond, which is a unit.
        """
        found = []
        for name, file in self.files.items():
            if self.room(name) == room:
                tree = ast.parse(file.read_text(encoding="utf-8"))
                found += [f"{name.rpartition('.')[2]}: {each}" for each in _chosen(tree.body, of_module=True)]
        return found

    @cached_property
    def functions(self) -> dict[str, Function]:
        """All functions and methods by their dotted name."""
        found: dict[str, Function] = {}
        for module, file in self.files.items():
            for node in ast.parse(file.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.FunctionDef):
                    found[f"{module}.{node.name}"] = Function(module, None, node)
                elif isinstance(node, ast.ClassDef):
                    for each in node.body:
                        if isinstance(each, ast.FunctionDef):
                            found[f"{module}.{node.name}.{each.name}"] = Function(module, node.name, each)
        return found

    @cached_property
    def names(self) -> dict[str, dict[str, str]]:
        """By module, what each name that it imports from the package stands for."""
        found: dict[str, dict[str, str]] = {}
        for module, file in self.files.items():
            found[module] = {
                alias.asname or alias.name: f"{node.module}.{alias.name}"
                for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
                if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(PACKAGE)
                for alias in node.names
            }
        return found

    def walk(self, function: str, parameter: str) -> frozenset[str]:
        """The functions that a parameter of a function reaches, the function itself among them."""
        seen: set[tuple[str, str]] = set()
        open_ = [(function, parameter)]
        while open_:
            if (here := open_.pop()) not in seen:
                seen.add(here)
                open_ += self._handed_on(*here)
        return frozenset(name for name, _ in seen)

    def _handed_on(self, function: str, parameter: str) -> list[tuple[str, str]]:
        found = []
        for call in (node for node in ast.walk(self.functions[function].node) if isinstance(node, ast.Call)):
            if (callee := self._called(self.functions[function], call.func)) is None:
                continue
            names = self.functions[callee].parameters
            given = [(names[i], value) for i, value in enumerate(call.args) if i < len(names)]
            given += [(each.arg, each.value) for each in call.keywords if each.arg in names]
            found += [(callee, name) for name, v in given if isinstance(v, ast.Name) and v.id == parameter]
        return found

    def _called(self, caller: Function, called: ast.expr) -> str | None:
        if isinstance(called, ast.Name):
            name = self.names[caller.module].get(called.id, f"{caller.module}.{called.id}")
        elif isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
            if called.value.id == "self":
                name = f"{caller.module}.{caller.owner}.{called.attr}"
            elif called.value.id in self.names[caller.module]:
                name = f"{self.names[caller.module][called.value.id]}.{called.attr}"
            else:
                return None
        else:
            return None
        module, _, last = name.rpartition(".")
        name = self.names.get(module, {}).get(last, name)  # what a package passes on from one of its modules
        return next((each for each in (name, f"{name}.__init__") if each in self.functions), None)

    @cached_property
    def longest_walks(self) -> list[tuple[int, int, int, str]]:
        """(functions, files, rooms, "function: parameter") of the walk of each parameter, the longest first."""
        found = []
        for function, each in self.functions.items():
            for parameter in each.parameters:
                reached = self.walk(function, parameter)
                modules = {self.functions[name].module for name in reached}
                rooms = {self.room(module) for module in modules}
                found.append((len(reached), len(modules), len(rooms), f"{function}: {parameter}"))
        return sorted(found, reverse=True)


@dataclass(frozen=True)
class Function:
    """A function or method."""

    module: str
    owner: str | None
    """The class of a method."""
    node: ast.FunctionDef

    @cached_property
    def parameters(self) -> list[str]:
        """Their names, those that a call gives by position first; without `self`."""
        given = self.node.args
        names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
        return names[1:] if self.owner is not None and names[:1] in (["self"], ["cls"]) else names


_NO_CHOICE = (0, 1, 2, 1e-9)


def _numbers(node: ast.AST) -> list[float]:
    """All that stand in a piece of code."""
    return [
        each.value
        for each in ast.walk(node)
        if isinstance(each, ast.Constant) and isinstance(each.value, int | float) and not isinstance(each.value, bool)
    ]


def _chosen(body: list[ast.stmt], *, of_module: bool) -> list[str]:
    """The names of chosen numbers in a module or class, and those that have none."""
    found = []
    for node in body:
        if isinstance(node, ast.ClassDef):
            found += _chosen(node.body, of_module=False)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            numbers = _numbers(node.value)
            alone = not any(isinstance(each, ast.Name) for each in ast.walk(node.value))
            if any(number not in _NO_CHOICE for number in numbers) or (of_module and alone and numbers):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found += [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]
        else:
            found += [f"{number} without a name" for number in _numbers(node) if number not in _NO_CHOICE]
    return found


def main() -> None:
    house = House(Path(sys.argv[1] if len(sys.argv) > 1 else "src").resolve())
    print(f"{sum(house.lines.values())} lines in {len(house.files)} files")
    print(f"{len(house.rooms)} rooms on {max(house.floors.values())} floors, {len(house.arrows)} arrows")
    print(f"{len(house.constants('pacing'))} constants in pacing")
    for room, lines in house.rooms.most_common():
        below = " ".join(sorted(b for a, b in house.arrows if a == room))
        print(f"  {room:10} {lines:6}  floor {house.floors[room]:2}  -> {below}")
    for name in ("loading.load", "engine.engine", "engine.loop"):
        found = house.closure(f"{PACKAGE}.{name}")
        print(f"closure of {name}: {len(found)} files, {house.weight(found)} lines")
    print(f"loaded by hs.load() and a generate: {len(house.loaded)} files, {house.weight(house.loaded)} lines")
    for functions, modules, rooms, walk in house.longest_walks[:5]:
        print(f"walk of {walk.removeprefix(f'{PACKAGE}.')}: {functions} functions in {modules} files of {rooms} rooms")


if __name__ == "__main__":
    main()
