"""Chat templates against transformers' apply_chat_template: the forms that well-known models use, and random templates."""

import json
import os
import random
import subprocess

import jinja2
import pytest
import transformers
from conftest import ROOT, STORIES
from transformers.utils.chat_template_utils import _compile_jinja_template

CHATML = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system
You are a helpful assistant<|im_end|>
' }}{% endif %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}"""

INSTRUCTIONS = """{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set system = messages[0]['content'] %}\
{% else %}{% set rest = messages %}{% set system = false %}{% endif %}{% for message in rest %}\
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate user/assistant') }}{% endif %}\
{% if loop.index0 == 0 and system != false %}{% set content = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + message['content'] %}\
{% else %}{% set content = message['content'] %}{% endif %}\
{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}\
{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"""

HEADERS = """{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{#- The system message comes first. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- "Today Date: " + date_string + "\\n\\n" + system_message + "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("One tool call at a time") }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '{"name": "' + call.name + '", "parameters": ' + (call.arguments | tojson) + "}" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

TURNS = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}\
{% for message in messages %}{% if message['role'] == 'assistant' %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}\
{{ '<start_of_turn>' + role + '
' + message['content'] | trim + '<end_of_turn>
' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model
'}}{% endif %}
"""

THINKING = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Tools\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- endif %}
{%- set ns = namespace(multi_step=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == "assistant" %}
        {%- set reasoning = '' %}
        {%- if '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and (loop.last or reasoning) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

LINES = """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>
'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""

TEMPLATES = {"chatml": CHATML, "instructions": INSTRUCTIONS, "headers": HEADERS, "turns": TURNS, "thinking": THINKING, "lines": LINES}
CONVERSATIONS = [
    [("user", "Hi")],
    [("system", " Be brief.\n"), ("user", "  What's \"2+2\"? é 中 🦙\n")],
    [("user", "a"), ("assistant", "<think>\nhm\n</think>\n\nb"), ("user", "c")],
    [("system", "S"), ("user", "a"), ("assistant", "b"), ("user", "<tool_response>1</tool_response>"), ("assistant", "<think>x</think>d")],
    [("assistant", "first"), ("user", "")],
]
TOOL = {"type": "function", "function": {"name": "f", "description": "é <x> & 'y'", "parameters": {"n": [1, 2.5, None, True], "e": {}}}}


def ours(requests):
    program = ROOT / os.environ.get("FOCUS_BUILD", "build/release") / "bin/render_template"
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    run = subprocess.run([program], input=lines, capture_output=True, text=True, encoding="utf-8", timeout=120)
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.split("\n") if line]


@pytest.mark.parametrize("name", TEMPLATES)
def test_equals_apply_chat_template(name):
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(STORIES / "tokenizer.json"), bos_token="<s>", eos_token="</s>")
    requests, expected = [], []
    for turns in CONVERSATIONS:
        messages = [{"role": role, "content": content} for role, content in turns]
        for prompted in (False, True):
            for tools in (None, [TOOL]):
                variables = dict(messages=messages, add_generation_prompt=prompted, tools=tools, documents=None, bos_token="<s>",
                                 eos_token="</s>")
                requests.append({"template": TEMPLATES[name], "variables": variables})
                try:
                    expected.append(tokenizer.apply_chat_template(messages, chat_template=TEMPLATES[name], tokenize=False, tools=tools,
                                                                  add_generation_prompt=prompted))
                except jinja2.exceptions.TemplateError as error:
                    expected.append(error)
    for answer, theirs in zip(ours(requests), expected, strict=True):
        if isinstance(theirs, str):
            assert answer.get("text") == theirs, answer
        else:
            assert str(theirs) in answer["error"]
    assert any(isinstance(theirs, str) for theirs in expected)


PIECES = ["{% if x %}", "{%- if not y -%}", "{% elif n > 2 %}", "{%- else %}", "{% endif -%}", "{% for i in l %}", "{%- for i in l[1:] -%}",
          "{% endfor %}", "{% set z = n * 2 %}", "{{ z }}", "{{ i }}", "{{- x | upper -}}", "{{ loop.last }}", "{# note #}", "{#- n -#}",
          "\n", "  ", "\t\n", "a", " b ", "{{ l | join('-') }}", "{{ d.items() | length }}", "{{ d.keys() | list }}", "{{ (n, 1)[0] }}", "{{ d['k'] ~ n }}",
          "{{ 'x' if y else 'w' }}", "{% continue %}", "{% break %}", "{{ d | tojson }}", "{{ l[-1] + n % 3 }}", "{%+ if x %}", "{{ n / 4 }}"]


def test_random_templates_equal_jinja():
    rng = random.Random(3)
    variables = {"x": "one two", "y": None, "n": 7, "l": [3, 1, 2], "d": {"k": "v", "é": [1, {"a": None}]}}
    templates = ["".join(rng.choice(PIECES) for _ in range(rng.randrange(1, 12))) for _ in range(6000)]
    rendered = 0
    for template, answer in zip(templates, ours([{"template": t, "variables": variables} for t in templates]), strict=True):
        try:
            expected = _compile_jinja_template(template).render(**variables)
        except (jinja2.exceptions.TemplateError, TypeError, SyntaxError):
            continue
        if "text" not in answer:
            # What is refused must be named.
            assert "tuples are not supported" in answer["error"] or "undefined" in answer["error"], (template, answer)
            continue
        rendered += 1
        assert answer["text"] == expected, template
    assert rendered > 300


SNIPPETS = [
    "{% for m in messages %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 }}/{{ loop.first }}/{{ loop.last }}/{{ loop.length }};{% endfor %}",
    "{% for m in messages %}{% if loop.previtem is defined and loop.previtem.role == m.role %}same{% endif %}{% if loop.nextitem %}{{ loop.nextitem.role }}{% endif %};{% endfor %}",
    "{% for m in messages %}{{ m.role }}{% else %}none{% endfor %}{% for m in [] %}x{% else %}none{% endfor %}",
    "{% for m in messages if m.role != 'system' %}{{ loop.index0 }}{{ m.content }}{% endfor %}",
    "{% for m in messages %}{% for w in m.content.split() %}{{ loop.index }}{{ w }} {% endfor %}{% endfor %}",
    "{% for key, value in d.items() %}{{ key }}={{ value }};{% endfor %}{% for key in d %}{{ key }}{% endfor %}",
    "{% for key, value in d | items %}{{ key }}{% endfor %}",
    "{% set ns = namespace(found=false, text='') %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.found = true %}{% set ns.text = ns.text ~ m.content %}{% endif %}{% endfor %}{{ ns.found }}{{ ns.text }}",
    "{% set block %}a {{ x }} b{% endset %}[{{ block }}]",
    "{{ x | trim }}|{{ x | trim | upper }}|{{ x.strip() | lower }}|{{ x | capitalize }}|{{ x | title }}|{{ x | length }}|{{ x | replace('e', 'E') }}",
    "{{ missing | default('d') }}|{{ '' | default('d') }}|{{ '' | default('d', true) }}|{{ none | default('d') }}|{{ missing | d('e', boolean=true) }}",
    "{{ d | tojson }}|{{ d | tojson(indent=2) }}|{{ x | tojson }}|{{ l | tojson }}|{{ '<a href=\"x\">&\\'é中' | tojson }}|{{ 1.5 | tojson }}|{{ none | tojson }}|{{ true | tojson }}",
    "{{ messages | map(attribute='role') | join(', ') }}|{{ messages | map(attribute='content') | map('upper') | list }}|{{ l | map('string') | join }}",
    "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}|{{ messages | rejectattr('role', 'eq', 'user') | map(attribute='role') | list }}|{{ (messages | selectattr('role', 'in', ['user', 'tool']) | first).content }}",
    "{{ messages | selectattr('tool_calls', 'defined') | list | length }}|{{ messages | selectattr('content') | list | length }}|{{ l | select('odd') | list }}|{{ l | reject('divisibleby', 3) | list }}",
    "{{ l | first }}{{ l | last }}{{ l | reverse | list }}{{ l | count }}",
    "{{ '3' | int + 1 }}{{ 7 // 2 }}{{ -7 // 2 }}{{ -7 % 3 }}{{ 7 / 2 }}{{ 3.0 }}",
    "{{ x | string }}|{{ \"it's a-b(c) ÉCOLE straße\" | title }}{{ \"it's éa 中b\".title() }}{{ 'ÉCOLE ß' | capitalize }}{{ 'straße éÿ' | upper }}|{{ 'abc' | list }}",
    "[{{ ' \u3000\u00a0x\u2003\x1f' | trim }}{{ 'äxä'.strip('ä') }}{{ '中a'.lstrip('丮') }}{{ 'a\u3000b\u00a0c'.split() }}]{{ x[0] }}{{ x[-1] }}{{ x[1:3] }}{{ x[:-1] }}{{ x[::-1] }}{{ messages[1:][0].role }}{{ messages[-1]['content'] }}{{ l[:2] }}{{ messages[0]['nothing'] }}",
    "{{ x.startswith('  ') }}{{ x.endswith('n ') }}{{ x.find('e') }}{{ x.split('e') }}{{ x.split() | length }}{{ x.lstrip() }}|{{ x.rstrip('n ') }}|{{ 'a,b,c'.split(',', 1) }}{{ ','.join(['a', 'b']) }}{{ x.upper().title() }}",
    "{{ x.count('e') }}{{ 'banana'.count('an') }}",
    "{{ 'a-b-c' | replace('-', '+', 1) }}{{ 'aXbXc'.replace('X', 'y', 1) }}{{ 'aXb'.replace('X', 'y') }}{{ 'a b'.split(sep=' ') }}{{ 'q' | int(3) }}{{ 'q' | int(default=4) }}",
    "{{ [missing, 'z', none] | map('default', 'x') | join }}{{ ['', 'z'] | map('default', 'x', boolean=true) | join('.') }}{{ ['a-b'] | map('replace', '-', '+') | list }}",
    "{{ messages | join('|', attribute='role') }}{{ messages | map(attribute='nothing', default='d') | list }}{{ [{'a': {'b': [1, 2]}}] | map(attribute='a.b.1') | list }}{{ [{'a': {'b': 0}}] | selectattr('a.b') | list }}",
    "{{ ' a b ' | trim(chars=' a') }}{{ l | tojson(indent=1) }}{{ 'ǆABC ßa' | capitalize }}{{ 'ǆA'.capitalize() }}{{ 'ßA' | capitalize }}",
    "{% if x %}\r\n  a\r\n{% endif %}\r\nb\rc\r\n{{ 'e\r\nf' }}\r\n",
    "{{ d.get('k') }}{{ d.get('no') }}{{ d.get('no', 'z') }}{{ d.k }}{{ d['k'] }}{{ d.keys() | list }}{{ d.values() | list | length }}{{ 'k' in d }}{{ 'no' not in d }}{{ 'e' in x }}{{ 3 in l }}",
    "{{ x is defined }}{{ missing is not defined }}{{ none is none }}{{ x is string }}{{ d is mapping }}{{ l is iterable }}{{ l is sequence }}{{ n is number }}{{ x is not mapping }}{{ true is boolean }}{{ n is odd }}{{ l is string }}{{ missing is undefined }}{{ true is true }}{{ n is eq 7 }}{{ n is divisibleby 7 }}",
    "{{ 1 if x else 2 }}{{ 'y' if missing }}{{ missing or 'f' }}{{ x and n }}{{ not x }}{{ (n > 3 and n <= 7) or false }}{{ 1 < 2 }}{{ n != 7 }}{{ [1, 2] == [1, 2] }}{{ none == false }}",
    "{{ 'a' ~ 1 ~ none ~ true }}{{ 'a' + 'b' }}{{ [1] + [2] }}{{ {'a': 1, 'b': [2, {'c': 3}]} }}{{ [1, 'a', 2.0, none, true] }}",
    "{{ 'tab\\t nl\\n q\\' b\\\\' }}{{ \"it's\" }}{{ '中🦙' | length }}{{ '中🦙'[1] }}",
    "{%- if x -%}  a  {%- else -%} b {%- endif -%}  \n  {{- n -}}  \n c {{ n }}\n{% if true %}\n  d\n{% endif %}\n  {%+ if true %} e {% endif %}\n{# c #}\nf",
    "{# {{ x }} #}{{ '{{' }}",
    "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}{% if loop.index > 2 %}{% break %}{% endif %}{{ m.content }}{% endfor %}",
    "{% generation %}{{ x }}{% endgeneration %}",
    "{{ range(3) | list }}{% for i in range(1, 6, 2) %}{{ i }}{% endfor %}{{ dict(a=1, b=2) }}{{ namespace(a=1).a }}",
    "{% if messages[0].role == 'assistant' %}{{ raise_exception('no ' ~ messages[0].role) }}{% endif %}ok",
    "{{ strftime_now('%Y-%m') }}|{{ strftime_now('%d %b %Y') if strftime_now is defined else '' }}",
    "{% set x = 'outer' %}{% for i in [1] %}{% set x = 'inner' %}{{ x }}{% endfor %}{{ x }}{% if true %}{% set x = 'if' %}{% endif %}{{ x }}",
]


@pytest.mark.parametrize("snippet", range(len(SNIPPETS)))
def test_every_feature_equals_jinja(snippet):
    template = SNIPPETS[snippet]
    variables = {"x": " two Wörds seen ", "n": 7, "l": [3, 1, 2], "d": {"k": "v", "é": [1, {"a": None, "b": True}], "z": 0.5}, "none": None,
                 "messages": [{"role": "system", "content": "S s"}, {"role": "user", "content": "a b"}, {"role": "user", "content": ""},
                              {"role": "assistant", "content": "c", "tool_calls": [{"name": "f"}]}]}
    (answer,) = ours([{"template": template, "variables": variables}])
    expected = _compile_jinja_template(template).render(**variables)
    assert answer.get("text") == expected, answer


# Jinja that no template of the known families uses.
REFUSED = {
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1) }}": "the tag 'macro'", "{% raw %}x{% endraw %}": "the tag 'raw'",
    "{% with a = 1 %}{{ a }}{% endwith %}": "the tag 'with'", "{% filter upper %}x{% endfilter %}": "the tag 'filter'",
    "{% include 'x' %}": "the tag 'include'", "{% set a, b = l %}": "set of several names", "{{ (1, 2) }}": "tuples",
    "{{ 1 < 2 < 3 }}": "chained comparisons", "{{ 2 ** 3 }}": "'**'", "{{ l | sort }}": "the filter 'sort'",
    "{{ d | dictsort }}": "the filter 'dictsort'", "{{ x | indent }}": "the filter 'indent'", "{{ n is gt 3 }}": "the test 'is gt'",
    "{{ x.swapcase() }}": "the method 'swapcase' of str", "{% for i in l %}{{ loop.cycle(1, 2) }}{% endfor %}": "'cycle'",
    "{{ x.startswith('a', 1) }}": "the method 'startswith' of str: 2 arguments, at most 1", "{{ x.find('a', 1) }}": "the method 'find' of str",
    "{{ x | upper(1) }}": "the filter 'upper': 1 arguments", "{{ x | int(0, 16) }}": "the filter 'int'", "{{ x | replace('a') }}": "the filter 'replace': an argument is missing",
    "{{ x | trim(what='a') }}": "the filter 'trim': the argument 'what' is not supported", "{{ l | map(attribute='a', other=1) }}": "the filter 'map': the argument 'other'",
    "{{ x | tojson(ensure_ascii=true) }}": "ensure_ascii", "{{ n is odd(1) }}": "the test 'is odd'", "{{ d.get('a', default=1) }}": "the method 'get' of dict",
    "{{ range(1, stop=2) }}": "the function 'range'", "{{ lipsum() }}": "'lipsum'", "{{ 'x' * 3 }}": "a number was expected, not str", "{{ '\\u00e9' }}": "the escape \\u",
}


@pytest.mark.parametrize("template", REFUSED)
def test_other_jinja_is_refused_by_name(template):
    (answer,) = ours([{"template": template, "variables": {"l": [1, 2], "d": {}, "n": 1, "x": "a"}}])
    assert REFUSED[template] in answer["error"] and answer["error"].count("\n") == 0, answer
