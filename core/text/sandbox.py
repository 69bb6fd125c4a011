"""Runs a chat template that came with weights: it can reach nothing, and it comes to an end.

Jinja's sandbox keeps a template from Python's objects; the budget here keeps it from time and
memory: turns of loops and calls are counted, and no text that it makes may pass a size. Filters and
methods are those that chat templates use, so that there are few ways to make one.
"""

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Template, nodes
from jinja2.exceptions import TemplateError
from jinja2.runtime import LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from sensorium.core.errors import BadCheckpoint

MAX_STEPS = 100_000
"""Turns of loops and calls in one rendering; a thousand messages need some ten thousand."""
MAX_CHARS = 16 * 2**20
"""Length of the rendering, and of any text made on the way."""
MAX_VALUES = 100_000
"""Length of any list made on the way."""
_CHARS_PER_STEP, _VALUES_PER_STEP = 1024, 16
"""What is passed over at once costs steps too."""

_FILTERS = """
    trim length count list items default d upper lower capitalize title first last map select
    reject selectattr rejectattr string int float reverse sort unique safe dictsort join abs
"""
_TEXT_METHODS = """
    strip lstrip rstrip split rsplit startswith endswith upper lower title capitalize replace
    removeprefix removesuffix find index count isdigit isalpha isalnum isspace join partition
    rpartition splitlines
"""


class _Spent(TemplateError):
    """The template went past a bound."""


class _Measured(NodeTransformer):
    """Rewrites a template: turns of loops are counted, joined texts are measured."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        """Pass the values of a loop through `counted`."""
        self.generic_visit(node)
        node.iter = _filtered(node.iter, "counted")
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        """Weigh what is compared or searched."""
        self.generic_visit(node)
        for operand in node.ops:
            operand.expr = _filtered(operand.expr, "sized")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        """Let `glued` do what `~` does."""
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), "glued")


def _filtered(value: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(value, name, [], [], None, None, lineno=value.lineno)


class _Environment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox with transformers' settings and names, and a budget."""

    intercepted_binops = frozenset({"*", "**", "+", "%"})

    def __init__(self, now: Callable[[], datetime]) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        self.steps_left = 0
        self.filters = {name: self._bounded(self.filters[name]) for name in _FILTERS.split()} | {
            "counted": self.counted,
            "sized": self.sized,
            "glued": lambda pieces: self.sized("".join(map(str, pieces))),
            "tojson": self._bounded(_json),
            "replace": lambda text, old, new: self._replaced(str(text), str(old), str(new)),
            "join": lambda pieces, between="", attribute=None: self._joined(
                pieces if attribute is None else [p[attribute] for p in pieces], str(between)
            ),
        }
        self.globals = {
            "range": self.globals["range"],
            "namespace": self.globals["namespace"],
            "dict": self.globals["dict"],
            "raise_exception": _raise,
            "strftime_now": lambda form: now().strftime(form),
        }

    def step(self, count: int = 1) -> None:
        """Count turns and calls."""
        self.steps_left -= count
        if self.steps_left < 0:
            raise _Spent(f"it takes more than {MAX_STEPS} steps")

    def counted(self, values: Iterable[Any]) -> Iterator[Any]:
        """Pass the values of a loop on."""
        for value in values:
            self.step()
            yield value

    def sized(self, value: Any) -> Any:
        """Pass a value on that isn't too long, and count the work of going over it."""
        if isinstance(value, str):
            self.step(len(value) // _CHARS_PER_STEP)
            if len(value) > MAX_CHARS:
                raise _Spent(f"it makes a text of more than {MAX_CHARS} characters")
        elif isinstance(value, list | tuple | dict):
            self.step(len(value) // _VALUES_PER_STEP)
            if len(value) > MAX_VALUES:
                raise _Spent(f"it makes a list of more than {MAX_VALUES} values")
        return value

    def _bounded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)  # with the mark of who wants the environment as an argument
        def bounded(*args: Any, **kwargs: Any) -> Any:
            self.step()
            for value in args:
                self.sized(value)
            return self.sized(function(*args, **kwargs))

        return bounded

    def wrap_str_format(self, value: Any) -> None:
        """Texts have no `format` here: its widths know no bound."""

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Allow the methods of texts that chat templates use; the rest as Jinja decides."""
        if isinstance(obj, str):
            return attr in _TEXT_METHODS.split()
        return super().is_safe_attribute(obj, attr, value)

    def call(self, context: Any, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call a function, macro or method of a template."""
        self.step()
        owner, name = getattr(obj, "__self__", None), getattr(obj, "__name__", "")
        self.sized(owner)
        if isinstance(obj, LoopContext):
            args = (self.counted(args[0]), *args[1:])
        if isinstance(owner, str) and name == "replace" and len(args) >= 2:
            return self._replaced(owner, *args[:2])
        if isinstance(owner, str) and name == "join" and args:
            return self._joined(args[0], owner)
        return self.sized(super().call(context, obj, *args, **kwargs))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Compute what an operator gives, unless that would be too much."""
        self.step()
        if operator == "**":
            raise _Spent("it takes powers")
        if operator == "%" and isinstance(left, str):
            raise _Spent("it formats with %")
        if operator == "*" and _size(left) * _size(right) > MAX_CHARS:
            raise _Spent("it makes a product larger than any template needs")
        return self.sized(super().call_binop(context, operator, left, right))

    def _replaced(self, text: str, old: str, new: str) -> str:
        if text.count(old) * len(new) + len(text) > MAX_CHARS:
            raise _Spent(f"it makes a text of more than {MAX_CHARS} characters")
        return text.replace(old, new)

    def _joined(self, pieces: Iterable[Any], between: str) -> str:
        texts = [self.sized(str(piece)) for piece in self.counted(pieces)]
        if sum(map(len, texts)) + len(texts) * len(between) > MAX_CHARS:
            raise _Spent(f"it makes a text of more than {MAX_CHARS} characters")
        return between.join(texts)


def _size(value: object) -> int:
    if isinstance(value, int):
        return abs(value)
    return len(value) if isinstance(value, str | list | tuple) else 1


def _json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON as transformers' filter does: not escaped for HTML."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=min(indent, 8) if indent else indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


class Sandbox:
    """One template, compiled."""

    def __init__(self, source: str, *, now: Callable[[], datetime] = datetime.now) -> None:
        """Compile; raises BadCheckpoint. `now` tells a template that asks for it the date."""
        self._environment = environment = _Environment(now)
        try:
            tree = _Measured().visit(environment.parse(source))
            tree.set_environment(environment)
            code = environment.compile(tree)
            self._template = Template.from_code(environment, code, environment.make_globals(None))
        except (TemplateError, RecursionError, ValueError) as error:
            raise BadCheckpoint(f"its chat template fails: {error}") from error

    def render(self, variables: Mapping[str, Any]) -> str:
        """Return what the template writes; raises BadCheckpoint if it fails or doesn't end."""
        self._environment.steps_left = MAX_STEPS
        size = 0
        pieces = []
        try:
            for piece in self._template.generate(variables):
                size += len(piece)
                if size > MAX_CHARS:
                    raise _Spent(f"it writes more than {MAX_CHARS} characters")
                pieces.append(piece)
        except (
            TemplateError,
            ArithmeticError,
            AttributeError,
            LookupError,
            RecursionError,
            TypeError,
            ValueError,
        ) as error:
            raise BadCheckpoint(f"its chat template fails: {error}") from error
        return "".join(pieces)
