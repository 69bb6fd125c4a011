"""Templates that came with weights: they work, they end, and they reach nothing."""

from datetime import datetime

import pytest

from sensorium.core.errors import BadCheckpoint
from sensorium.core.text.sandbox import MAX_CHARS, Sandbox


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "{% for i in range(3) %}{{ i ~ ':' ~ loop.last ~ ' ' }}{% endfor %}",
            "0:False 1:False 2:True ",
        ),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        ("{{ {'b': '<é>', 'a': [1]} | tojson }}", '{"b": "<é>", "a": [1]}'),
        ("{{ ' x '.strip().upper() + ('a-b'.split('-') | join('+')) }}", "Xa+b"),
        ("{% set ns = namespace(n=1) %}{% if ns.n in [1] %}{{ ns.n * 2 }}{% endif %}", "2"),
        ("{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(word) }}", "<hi>"),
        ("{{ strftime_now('%d %b %Y') }}", "30 Nov 2026"),
        ("  {% if true %}\nx\n  {% endif %}\ny", "x\ny"),
        ("{{ 'aXbX'.replace('X', '1') ~ ('aX' | replace('X', '2')) }}", "a1b1a2"),
        ("{{ [{'n': 'a'}, {'n': 'b'}] | map(attribute='n') | join(',') }}", "a,b"),
    ],
)
def test_templates_work_as_in_transformers(source: str, expected: str) -> None:
    sandbox = Sandbox(source, now=lambda: datetime(2026, 11, 30))
    assert sandbox.render({"word": "hi"}) == expected


LOOPS = [
    "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% for i in range(9999) recursive %}{% if loop.depth < 3 %}{{ loop(range(9999)) }}{% endif %}"
    "{% endfor %}",
    "{% set ns = namespace(l=[1] * 99999) %}{% for i in range(99999) %}"
    "{% set ns.l = ns.l | map('string') | list %}{% endfor %}",
    "{% set l = range(99999) | list %}{% for i in l %}{{ -1 in l }}{% endfor %}",
]
SIZES = [
    "{{ 'a' * 1000000000 }}",
    "{{ 10 ** 1000000000 }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '{:1000000000}'.format(1) }}",
    "{{ 'a'.ljust(1000000000) }}",
    "{{ 'a' | center(1000000000) }}",
    "{% set x = 'a' * 9000000 %}{{ x.replace('a', x) }}",
    "{% set x = 'a' * 9000000 %}{{ x | replace('a', x) }}",
    "{% set x = 'a' * 9000000 %}{{ x.join([1, 2, 3]) }}",
    "{% set x = 'a' * 9000000 %}{{ [1, 2, 3] | join(x) }}",
    "{% set x = 'a' * 9000000 %}{{ x }}{{ x }}",
    "{% set ns = namespace(x='a' * 99) %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}"
    "{% endfor %}",
    "{% set ns = namespace(x='a' * 99) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}"
    "{% endfor %}",
    "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}"
    "{% endfor %}",
]
REACHES = [
    "{{ ''.__class__.__mro__ }}{{ ''.__class__.x }}",
    "{{ messages.__class__.__mro__[1].__subclasses__() }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}",
    "{{ messages.append(1) }}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ lipsum() }}",
    "{{ raise_exception('no such role') }}",
    "{{ messages[0].x.y }}",
    "{{ 1 / 0 }}",
    "{% for",
]


@pytest.mark.parametrize("source", LOOPS + SIZES + REACHES)
def test_endless_huge_or_hostile_template_is_a_bad_checkpoint(source: str) -> None:
    with pytest.raises(BadCheckpoint, match="chat template"):
        Sandbox(source).render({"messages": []})


def test_template_may_say_why_it_refuses() -> None:
    with pytest.raises(BadCheckpoint, match="roles must alternate"):
        Sandbox("{{ raise_exception('roles must alternate') }}").render({})


def test_budget_is_for_one_rendering() -> None:
    sandbox = Sandbox("{% for i in range(60000) %}{% endfor %}ok")
    assert [sandbox.render({}) for _ in range(3)] == ["ok"] * 3


def test_long_conversation_is_within_the_budget() -> None:
    source = "{% for m in messages %}{{ '<' + m.role + '>' ~ m.content | trim }}{% endfor %}"
    messages = [{"role": "user", "content": "word " * 400}] * 1000
    text = Sandbox(source).render({"messages": messages})
    assert len(text) == 1000 * (len("<user>") + 1999)
    assert len(text) < MAX_CHARS
