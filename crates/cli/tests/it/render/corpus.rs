//! Template features, one file each, rendered by makejinja and by us: not a byte may differ, but for what is
//! listed as different on purpose.

/// The data of all of them.
pub(super) const DATA: &str = r#"name: lab
title: the "home" lab & more
empty: ""
none: ~
yes_value: yes
off_value: off
port: 5432
ratio: 0.25
whole: 3.0
huge: 1.0e+20
tiny: 0.00001
mode: 0755
started: 12:30
mac: 52:54:10:12:34:56
version: 1.11.4
lines: |
  first
  second
    third
unicode: "grün ✓ <tag>"
tags: [kubernetes, linux, talos]
numbers: [3, 1, 2, 3]
nested: { b: 2, a: { x: [1, { y: deep }] } }
day: 2024-01-15
at: 2024-01-15T10:20:30Z
later: 2024-1-15 10:20:30.5 +02:00
naive: 2024-01-05 01:02:03
cidr: 10.0.0.0/24
cidr6: 2001:db8::/64
nodes:
  - { name: n1, address: 10.0.0.11, role: controller, cores: 4, disk: { size: 100 }, enabled: true }
  - { name: n2, address: 10.0.0.12, role: worker, cores: 8, disk: { size: 200 }, enabled: false }
  - { name: n3, address: 10.0.0.13, role: worker, cores: 2, disk: { size: 50 }, enabled: true }
"#;

/// Files that others use.
pub(super) const SHARED: &[(&str, &str)] = &[
    (
        "macros.j2",
        "#% macro greet(who, times=1) %#hello #{ who }# x#{ times }# in #{ name }##% endmacro %#\n#% set answer = 42 %#\n",
    ),
    (
        "base.j2",
        "#| base #|<head>#% block head %#base head#% endblock %#</head>\n<body>#% block body %##% endblock %#</body>\n",
    ),
    (
        "partial.inc",
        "included by #{ name }#: #{ loop_name | default('nobody') }#\n",
    ),
    (
        "seen.j2",
        "#% macro seen() %##{ name }# #{ x | default('none') }##% endmacro %##% set top = x | default('none') %#\n",
    ),
    (
        "sets.inc",
        "#% set leaked = 5 %##% macro made() %#made#% endmacro %#sets #{ x | default('none') }#\n",
    ),
    (
        "more.j2",
        "#% macro add(list, x) %##% do list.append(x) %##% endmacro %##% macro all(a) %##{ a }# #{ varargs }# #{ kwargs }##% endmacro %#\n",
    ),
];

pub(super) const FEATURES: &[(&str, &str)] = &[
    ("variable", "name: #{ name }#\nport: #{ port }#\n"),
    (
        "attributes",
        "#{ nested.a.x[1].y }# #{ nested['b'] }# #{ nested.a['x'][0] }#\n",
    ),
    (
        "python-scalars",
        "#{ yes_value }# #{ off_value }# #{ none }# #{ ratio }# #{ whole }# #{ huge }# #{ tiny }# #{ mode }# #{ version }#\n",
    ),
    ("python-lists", "#{ tags }# #{ numbers }# #{ nested }#\n"),
    ("comment", "a#| not here #|b\n#| a whole line #|\nc\n"),
    (
        "if-else",
        "#% if port > 5000 %#\nhigh\n#% elif port > 1000 %#\nmiddle\n#% else %#\nlow\n#% endif %#\n",
    ),
    ("inline-if", "#{ 'on' if yes_value else 'off' }#|\n"),
    (
        "for",
        "#% for node in nodes %#\n- #{ node.name }#: #{ node.address }#\n#% endfor %#\n",
    ),
    (
        "for-else",
        "#% for x in [] %#\n#{ x }#\n#% else %#\nnone\n#% endfor %#\n",
    ),
    (
        "for-if",
        "#% for node in nodes if node.enabled %#\n#{ loop.index }#/#{ loop.length }# #{ node.name }#\n#% endfor %#\n",
    ),
    (
        "loop-variables",
        "#% for t in tags %##{ loop.index0 }##{ loop.revindex }##{ loop.first }##{ loop.last }# #{ loop.previtem | default('-') }# #{ loop.nextitem | default('-') }#\n#% endfor %#\n",
    ),
    (
        "loop-cycle",
        "#% for t in tags %##{ loop.cycle('odd', 'even') }# #% endfor %#\n",
    ),
    (
        "loop-changed",
        "#% for n in [1, 1, 2] %##{ loop.changed(n) }# #% endfor %#\n",
    ),
    (
        "loop-depth",
        "#% for a in [1, 2] %##% for b in [3] %##{ loop.depth }##{ a }##{ b }# #% endfor %##% endfor %#\n",
    ),
    (
        "loop-recursive",
        "#% for item in [[1, [2, 3]], [4]] recursive %##% if item is iterable %#(#{ loop(item) }#)#% else %##{ item }##% endif %##% endfor %#\n",
    ),
    (
        "unpacking",
        "#% for k, v in nested.items() %##{ k }#=#{ v }#;#% endfor %#\n#% for a, b in [(1, 2), (3, 4)] %##{ a + b }# #% endfor %#\n",
    ),
    (
        "set",
        "#% set x = port + 1 %#\n#{ x }#\n#% set a, b = 1, 2 %##{ a }##{ b }#\n",
    ),
    (
        "set-block",
        "#% set text %#\n  block #{ name }#\n#% endset %#\n[#{ text }#]\n",
    ),
    (
        "set-scope",
        "#% set x = 1 %##% for i in [1, 2] %##% set x = x + i %##{ x }# #% endfor %##{ x }#\n",
    ),
    (
        "namespace",
        "#% set ns = namespace(total=0) %##% for n in numbers %##% set ns.total = ns.total + n %##% endfor %##{ ns.total }#\n",
    ),
    ("with", "#% with x = 1, y = 2 %##{ x + y }##% endwith %#\n"),
    (
        "macro",
        "#% macro item(n, sep='-') %##{ sep }# #{ n }#\n#% endmacro %##{ item('a') }##{ item('b', sep='*') }#\n",
    ),
    (
        "macro-varargs",
        "#% macro m(a, b='x') %##{ a }##{ b }##% endmacro %##{ m(1) }# #{ m(b=2, a=1) }#\n",
    ),
    (
        "macro-caller",
        "#% macro wrap() %#<#{ caller() }#>#% endmacro %##% call wrap() %#inside #{ name }##% endcall %#\n",
    ),
    (
        "macro-caller-args",
        "#% macro each(list) %##% for x in list %##{ caller(x) }##% endfor %##% endmacro %##% call(x) each(tags) %#[#{ x }#]#% endcall %#\n",
    ),
    (
        "import",
        "#% import 'macros.j2' as m %##{ m.greet('you') }# #{ m.answer }#\n",
    ),
    (
        "from-import",
        "#% from 'macros.j2' import greet, answer as a %##{ greet('me', 2) }# #{ a }#\n",
    ),
    (
        "include",
        "#% for loop_name in ['a', 'b'] %##% include 'partial.inc' %##% endfor %#\n",
    ),
    (
        "include-missing",
        "a#% include 'no-such' ignore missing %#b#% include ['no-such', 'partial.inc'] %#\n",
    ),
    (
        "extends",
        "#% extends 'base.j2' %#\n#% block head %##{ super() }# and more#% endblock %#\n#% block body %#body of #{ name }##% endblock %#\n",
    ),
    (
        "raw",
        "#% raw %##{ not rendered }# #% nor this %##% endraw %#\n",
    ),
    (
        "filter-block",
        "#% filter upper %#loud #{ name }##% endfilter %#\n",
    ),
    (
        "hcl",
        "resource \"x\" \"y\" {\n  name = \"${var.name}-#{ name }#\"\n  list = [for k in var.keys : k if k != \"\"]\n  text = \"%{ if a }b%{ endif }\"\n}\n",
    ),
    (
        "go-template",
        "{{ .Values.name }} {% raw %} {# no comment #}\n",
    ),
    ("trim-blocks", "a\n  #% if true %#\n  b\n  #% endif %#\nc\n"),
    (
        "minus",
        "a  \n#%- if true -%#\n   b   \n#%- endif -%#\n  c\n#{- name -}#\n d\n",
    ),
    ("plus", "a\n    #%+ if true %#b#% endif +%#\nc\n"),
    ("no-newline-at-end", "no newline at the end of #{ name }#"),
    (
        "blank-lines",
        "\n\na\n\n#% if true %#\n\nb\n#% endif %#\n\n\n",
    ),
    ("crlf", "a\r\n#% if true %#\r\nb\r\n#% endif %#\r\nc\r\n"),
    (
        "math",
        "#{ 7 / 2 }# #{ 7 // 2 }# #{ 7 % 3 }# #{ 2 ** 8 }# #{ -7 // 2 }# #{ 1 + 2 * 3 }# #{ (1 + 2) * 3 }# #{ 10 / 5 }#\n",
    ),
    (
        "strings",
        "#{ 'a' ~ 1 ~ none }# #{ 'a' + 'b' }# #{ 'ab' * 3 }# #{ name[0] }# #{ name[1:] }# #{ name[::-1] }# #{ 'a' in name }#\n",
    ),
    (
        "comparisons",
        "#{ 1 < 2 }# #{ 1 == 1.0 }# #{ 'a' != 'b' }# #{ not true }# #{ true and false or true }# #{ 2 in numbers }# #{ 9 not in numbers }#\n",
    ),
    (
        "literals",
        "#{ [1, 'two', 3.5, true, none] }# #{ {'a': 1, 'b': [2]} }# #{ (1, 2) }# #{ (1,) }#\n",
    ),
    (
        "slices",
        "#{ numbers[1:3] }# #{ numbers[-1] }# #{ tags[:2] | join('+') }# #{ numbers[::2] }#\n",
    ),
    (
        "tests",
        "#{ port is number }# #{ name is string }# #{ tags is sequence }# #{ nested is mapping }# #{ missing is defined }# #{ none is none }# #{ 3 is odd }# #{ 4 is divisibleby 2 }# #{ name is eq 'lab' }# #{ 1 is in numbers }# #{ true is boolean }# #{ 1.5 is float }# #{ 1 is integer }# #{ 'a' is lower }# #{ 'A' is upper }# #{ tags is iterable }#\n",
    ),
    (
        "default",
        "#{ missing | default('fallback') }# #{ empty | default('x') }# #{ empty | default('x', true) }# #{ missing is undefined }#\n",
    ),
    (
        "case-filters",
        "#{ 'hello world' | title }# #{ 'hELLO' | capitalize }# #{ name | upper }# #{ 'ABC' | lower }# #{ \"it's one-two\" | title }#\n",
    ),
    (
        "trim-replace",
        "[#{ '  x ' | trim }#] #{ 'a-b-c' | replace('-', '_') }# #{ 'aaa' | replace('a', 'b', 2) }# #{ 'xxyxx' | trim('x') }#\n",
    ),
    (
        "join",
        "#{ tags | join(', ') }# #{ nodes | join(',', attribute='name') }# #{ numbers | join }#\n",
    ),
    (
        "length",
        "#{ tags | length }# #{ name | count }# #{ nested | length }# #{ tags | first }# #{ tags | last }#\n",
    ),
    (
        "map-attribute",
        "#{ nodes | map(attribute='name') | list }# #{ nodes | map(attribute='disk.size') | join(' ') }# #{ nodes | map(attribute='zone', default='none') | list }#\n",
    ),
    (
        "map-filter",
        "#{ tags | map('upper') | list }# #{ tags | map('replace', 'l', 'L') | join(' ') }#\n",
    ),
    (
        "select",
        "#{ numbers | select('odd') | list }# #{ numbers | reject('odd') | list }# #{ numbers | select('greaterthan', 1) | list }# #{ [0, 1, '', 'a'] | select | list }#\n",
    ),
    (
        "selectattr",
        "#{ nodes | selectattr('role', 'equalto', 'worker') | map(attribute='name') | list }# #{ nodes | rejectattr('enabled') | map(attribute='name') | list }# #{ nodes | selectattr('cores', 'ge', 4) | list | length }# #{ nodes | selectattr('zone', 'defined') | list }#\n",
    ),
    (
        "groupby",
        "#% for role, list in nodes | groupby('role') %##{ role }#: #{ list | map(attribute='name') | join(',') }#\n#% endfor %#\n",
    ),
    (
        "sort",
        "#{ numbers | sort }# #{ numbers | sort(reverse=true) }# #{ nodes | sort(attribute='cores') | map(attribute='name') | list }# #{ ['b', 'A', 'c'] | sort }# #{ ['b', 'A', 'c'] | sort(case_sensitive=true) }#\n",
    ),
    (
        "unique",
        "#{ numbers | unique | list }# #{ nodes | map(attribute='role') | unique | join(' ') }#\n",
    ),
    (
        "min-max-sum",
        "#{ numbers | min }# #{ numbers | max }# #{ numbers | sum }# #{ nodes | sum(attribute='cores') }# #{ nodes | map(attribute='cores') | max }#\n",
    ),
    (
        "batch-slice",
        "#{ numbers | batch(3) | list }# #{ numbers | batch(3, 0) | list }# #{ range(7) | slice(3) | list }#\n",
    ),
    (
        "dictsort",
        "#{ nested | dictsort }# #{ {'b': 1, 'a': 2} | dictsort(by='value') }# #{ {'b': 1, 'A': 2} | dictsort(true) }#\n",
    ),
    (
        "items",
        "#% for k, v in nested | items %##{ k }# #% endfor %##{ nested.keys() | list }# #{ {'a': 1}.values() | list }# #{ nested.get('zz', 'gone') }#\n",
    ),
    (
        "indent",
        "a:\n  #{ lines | indent(2) }#|\nb:\n#{ lines | indent(4, true) }#|\n#{ 'a\\n\\nb' | indent(2, blank=true) }#\n",
    ),
    (
        "tojson",
        "#{ nested | tojson }# #{ title | tojson }# #{ unicode | tojson }# #{ [1.5, none, true] | tojson }#\n",
    ),
    (
        "tojson-indent",
        "#{ nested | tojson(indent=2) }#\n#{ [] | tojson(indent=2) }#\n",
    ),
    (
        "format",
        "#{ '%s-%03d' | format(name, 7) }# #{ '%.2f' | format(ratio) }# #{ '%-5s|' | format('ab') }# #{ '%x' | format(255) }#\n",
    ),
    (
        "percent",
        "#{ '%d' % port }# #{ '%s-%02d' % (name, 7) }# #{ '%5.1f|%-6s|%+d|%x|%X|%o|%%' % (ratio, 'ab', 3, 255, 255, 8) }# #{ '%(name)s has %(cores)d' % nodes[0] }# #{ 'node%03d' % 7 }# #{ \"%s.%s\" % (name, 'lan') }#\n",
    ),
    (
        "percent-operands",
        "#{ 'a' ~ '%d' % 3 ~ 'b' }# #{ '%s' % name | upper }# #{ 7 % 4 }# #{ '%d' % (2 + 3) }# #{ ('%d' % 3) | int + 1 }# #{ '%s' % tags[0] }# #{ '%s' % nodes[1].disk.size }# #{ '%d' % -3 }# #{ '%s' % ('%02d' % 5) }# #{ 'p%s' % port == 'p5432' }#\n#% for n in nodes %##{ '%s=%s;' % (n.name, n.disk.size) }##% endfor %#\n#% set host = '%s-%d' % (name, loop_nr | default(1)) %##{ host }#\n",
    ),
    (
        "percent-values",
        "#{ '%s %s %s %s' % (none, yes_value, whole, huge) }# #{ '%s' % (1,) }# #{ '%s' % tags }# #{ '%s' % [tags] }# #{ '%r %r %5.1r|' % ('it', 1.5, 'cut') }# #{ '%s%% of %r' % (5, tags) }# #{ '%*d' % (5, 42) }# #{ '%i %c' % (3, 'x') }# #{ '%5s|%-5s|%05d|%.2s' % ('a', 'b', -3, 'cut') }# #{ '%e %g %.3f' % (12345.678, ratio, ratio) }# #{ '%d' % 3.9 }# #{ '%d' % true }#\n",
    ),
    (
        "str-format",
        "#{ '{:>5}|{:<5}|{:^5}|{:*^7}'.format('a', 'b', 'c', 'd') }# #{ '{0}-{1}-{0}'.format(1, 2) }# #{ '{:02d} {:x} {:#x} {:b} {:.2f} {:,}'.format(7, 255, 255, 5, ratio, 1234567) }# #{ '{n}: {v}'.format(n='a', v='b') }# #{ '{{}}'.format() }# #{ '{0[name]} {0[disk][size]}'.format(nodes[0]) }# #{ '{:+d} {:08.3f} {:e}'.format(5, 3.14159, 12345.678) }# #{ '{} {} {}'.format(none, yes_value, whole) }# #{ '{:5}|{:<5}|'.format(42, 42) }#\n",
    ),
    (
        "numbers",
        "#{ 42.55 | round(1) }# #{ 42.5 | round }# #{ 3.7 | round(0, 'floor') }# #{ -5 | abs }# #{ '42' | int + 1 }# #{ 'x' | int(7) }# #{ '1.5' | float }# #{ '0x1f' | int(base=16) }#\n",
    ),
    (
        "urlencode",
        "#{ 'a b/c?d=ü' | urlencode }# #{ {'a': 1, 'b': 'x y'} | urlencode }#\n",
    ),
    (
        "escape",
        "#{ '<a href=\"x\">' | e }# #{ unicode | escape }# #{ '<b>' | safe }# #{ '<b>' | forceescape }# #{ '<p>a <b>b</b></p>' | striptags }#\n",
    ),
    (
        "words",
        "#{ 'one two three' | wordcount }# #{ 'one two three four five' | truncate(12) }# #{ 'one two three four' | truncate(9, true, '!') }# #{ 'abc' | center(9) }#|\n#{ 'one two three four five six' | wordwrap(10) }#\n",
    ),
    (
        "reverse",
        "#{ tags | reverse | list }# #{ name | reverse }# #{ 'abc' | list }# #{ 5 | string | length }#\n",
    ),
    (
        "filesize",
        "#{ 1000 | filesizeformat }# #{ 1048576 | filesizeformat(true) }# #{ 10 | filesizeformat }#\n",
    ),
    (
        "xmlattr",
        "<x#{ {'a': 1, 'b': none, 'c': '<'} | xmlattr }#>\n",
    ),
    (
        "string-methods",
        "#{ name.upper() }# #{ 'a,b'.split(',') }# #{ 'x'.join(tags) }# #{ 'abc'.startswith('ab') }# #{ 'a-b'.replace('-', '') }# #{ ' x '.strip() }# #{ 'n1'.zfill(4) }# #{ 'v1.2'.removeprefix('v') }# #{ 'a.b.c'.rsplit('.', 1) }# #{ 'abc'.find('c') }# #{ '{}-{}'.format(1, 'x') }# #{ 'Ab'.swapcase() }# #{ 'ab'.ljust(4) }#|#{ 'ab'.rjust(4) }# #{ 'a=b'.partition('=') }#\n",
    ),
    (
        "global-functions",
        "#{ range(3) | list }# #{ range(1, 10, 3) | list }# #{ dict(a=1, b=2) }# #% set c = cycler('a', 'b') %##{ c.next() }##{ c.next() }##{ c.next() }# #% set j = joiner('|') %##% for t in tags %##{ j() }##{ t }##% endfor %#\n",
    ),
    (
        "plugin-filters",
        "#{ cidr | nthhost(1) }# #{ cidr | nthhost(254) }# #{ cidr6 | nthhost(10) }# #{ cidr | nthhost(999) }# #{ 'a/b/c.yaml.j2' | basename }#\n",
    ),
    ("empty-file", "#% if false %#\nnothing\n#% endif %#\n  \n"),
    ("only-macros", "#% macro x() %#y#% endmacro %#\n"),
    ("do-nothing", "plain text, no code: 100% # { } \n"),
    ("attr", "#{ nodes | map(attribute='enabled') | list }#\n"),
    (
        "chained",
        "#{ nodes | selectattr('enabled') | map(attribute='address') | map('replace', '10.0.0.', '') | map('int') | sum }#\n",
    ),
    ("pprint", "#{ tags | pprint }# #{ name | pprint }#\n"),
    (
        "quotes-in-lists",
        "#{ [\"it's\", 'say \"x\"', 'both\\'\"', 'tab\\t', 'back\\\\slash'] }#\n",
    ),
    (
        "nested-floats",
        "#{ [1.0, 0.1, 100.0] }# #{ {'x': 2.50} }#\n",
    ),
    (
        "multi-line-call",
        "#{ nodes\n   | map(attribute='name')\n   | join(',') }#\n",
    ),
    (
        "expression-statement",
        "#% set list = [] %##% set list = list + ['a'] %##{ list }#\n",
    ),
    (
        "include-context",
        "#% set x = 1 %#\n#% include 'sets.inc' %#\n  #% include 'sets.inc' without context %#\n#%- include 'sets.inc' without context -%#\n|\n#% include 'sets.inc' with context %#\n#% include ['no-such', 'sets.inc'] ignore missing without context %#\n#% include 'no-such' ignore missing without context %#\n#% for x in [1, 2] %##% include 'sets.inc' without context %##% endfor %#\n#{ leaked | default('not leaked') }# #{ made is defined }#\n",
    ),
    (
        "import-context",
        "#% set x = 1 %##% set name = 'other' %##% import 'seen.j2' as a %#\n#{ a.seen() }# #{ a.top }#\n#% import 'seen.j2' as b with context %#\n#{ b.seen() }# #{ b.top }#\n#% import 'seen.j2' as c without context %#\n#{ c.seen() }# #{ c.top }#\n#% for x in [1, 2] %##% set y = x %##% from 'seen.j2' import seen, top as t, gone %##{ seen() }# #{ t }# #{ gone is defined }#;#% endfor %#\n#% from 'seen.j2' import seen with context %##{ seen() }#\n#% macro inside(x) %##% import 'seen.j2' as d %##{ d.seen() }##% endmacro %##{ inside(7) }#\n",
    ),
    (
        "import-in-child",
        "#% extends 'base.j2' %#\n#% import 'seen.j2' as a %#\n#% block body %##{ a.seen() }# #% from 'seen.j2' import seen %##{ seen() }##% include 'sets.inc' without context %##% endblock %#\n",
    ),
    (
        "append",
        "#% set l = [] %##% for n in nodes %##% set _ = l.append(n.name) %##% endfor %##{ l }# #{ l | length }# #{ l | join(',') }#\n#% set m = [1] %##{ m.append(2) or '' }##% do m.extend([3, 4]) %##% do m.insert(0, 9) %##{ m }# #{ m.pop() }# #{ m.pop(0) }# #% do m.remove(2) %##{ m }# #{ m == [1, 3] }# #{ m + [5] }# #{ m.index(3) }# #{ 3 in m }# #{ m[0] }# #{ m[-1] }# #{ m[1:] }# #{ m is sequence }# #{ m | tojson }# #{ m | sort(reverse=true) }# #{ '%s' % m }# #{ [m, m] }#\n",
    ),
    (
        "append-aliases",
        "#% set a = [1] %##% set b = a %##% do b.append(2) %##{ a }# #% set c = a + [3] %##% do a.append(9) %##{ c }# #% do c.append(4) %##{ c }# #{ a }#\n#% set d = a if true else [] %##% do d.append(0) %##{ a }# #% set e = a | list %##% do e.append(7) %##{ a }# #{ e }# #% set f = numbers | sort %##% do f.append(8) %##{ f }# #{ numbers }#\n#% do f.reverse() %##{ f }##% do f.sort() %##{ f }##% do f.clear() %##{ f }#\n",
    ),
    (
        "append-elsewhere",
        "#% import 'more.j2' as more %##% set l = [] %##% do more.add(l, 1) %##{ more.add(l, 2) }##{ l }# #% set ns = namespace(l=[]) %##% for n in numbers %##% do ns.l.append(n * 2) %##% endfor %##{ ns.l }#\n",
    ),
    (
        "append-while-looping",
        "#% set todo = [1] %##% for n in todo %##% if n < 5 %##% do todo.append(n + 1) %##% endif %##{ n }# #{ loop.index }#;#% endfor %##{ todo }# #{ todo | reverse | list }# #{ todo[::-1] }# #{ todo | length }# #{ todo | last }# #{ todo | batch(2) | list }# #{ todo | slice(2) | list }#\n",
    ),
    (
        "update",
        "#% set d = {} %##% for n in nodes %##% do d.update({n.name: n.role}) %##% endfor %##{ d }# #{ d.n1 }# #{ d['n2'] }# #{ d | length }# #% for k, v in d.items() %##{ k }#=#{ v }# #% endfor %##{ d | tojson }# #{ d.keys() | list }# #{ d | dictsort }# #{ 'n1' in d }# #{ d.get('q') }#\n#% do d.update(k=5) %##% set _ = d.__setitem__('s', 6) %##{ d }# #{ d.pop('s') }# #{ d.pop('t', 'gone') }# #% set e = dict(d, x=1) %##% do e.update({'y': 2}) %##{ e }# #{ d == {} }# #% do e.clear() %##{ e }#\n#% set by = {} %##% for n in nodes %##% do by.setdefault(n.role, []).append(n.name) %##% endfor %##{ by }#\n",
    ),
    (
        "list-methods",
        "#{ [1, 2].index(2) }# #{ numbers.index(1) }# #{ tags.count('linux') }#\n",
    ),
    (
        "default-by-name",
        "#{ empty | default('z', boolean=true) }# #{ missing | default(default_value='y') }# #{ missing | d('q') }# #{ empty | d('q', true) }#\n",
    ),
    (
        "varargs",
        "#% macro v(a, b=2) %##{ a }# #{ b }# #{ varargs }# #{ kwargs }##% endmacro %#\n#{ v(1) }# #{ v(1, 3, 4, 5, z=6) }#\n#% macro w() %##% for x in varargs %#<#{ x }#>#% endfor %##{ caller() if caller is defined else '' }##% endmacro %#\n#{ w(1, 2) }# #% call w(7) %#in#% endcall %#\n#% macro tag(name) %#<#{ name }##% for k, v in kwargs.items() %# #{ k }#=\"#{ v }#\"#% endfor %#>#% endmacro %##{ tag('a', href='h', id=1) }# #{ tag.name }#\n#% import 'more.j2' as more %##{ more.all(1, 2, q=3) }#\n",
    ),
    (
        "cycler",
        "#% set c = cycler('a', 'b') %##{ c.current }##{ c.next() }##{ c.current }##{ c.next() }##{ c.next() }##% do c.reset() %##{ c.current }#\n",
    ),
    (
        "dates",
        "#{ day }# #{ at }# #{ later }# #{ naive }# #{ day.isoformat() }# #{ at.isoformat() }# #{ at.strftime('%Y-%m-%d %H:%M:%S %j %B %b %a %A %y %p %I %f [%z] [%Z] %% %c %x %X') }# #{ day.strftime('%d/%m/%Y [%z]') }# #{ later.strftime('%z %Z') }# #{ day.year }# #{ at.hour }# #{ later.microsecond }# #{ at.date() == day }# #{ day.weekday() }# #{ at.timestamp() }# #{ day.replace(year=2025) }# #{ day ~ 'x' }# #{ day | string }# #{ day is string }# #{ at > later }# #{ day < day }# #{ [at, later] | sort | join(',') }#\n",
    ),
    (
        "round-whole",
        "#{ 5 | round(2, 'floor') }# #{ 5 | round(1, 'ceil') }# #{ 5 | round }# #{ 5.55 | round(1, 'floor') }# #{ 5 | round(2) }# #{ 1234 | round(-2) }# #{ 1234 | round(-2, 'floor') }# #{ 5.5 | round(method='ceil') }#\n",
    ),
    (
        "dates-in-lists",
        "#{ [day] }# #{ {'k': at} }# #{ [later, naive] }# #{ (day,) }# #{ '%r %s' % (day, [day]) }# #{ [day] | string }#\n",
    ),
    (
        "parts-of-dates",
        "#{ at.time() }# #{ later.time() }# #{ at.timetz() }# #{ at.tzinfo }# #{ later.tzinfo }# #{ naive.tzinfo }# #{ [at.tzinfo, later.tzinfo, later.time()] }# #{ day.isocalendar() }# #{ day.isocalendar()[1] }# #{ day.isocalendar().week }# #{ day.toordinal() }# #{ day.ctime() }# #{ at.ctime() }# #{ at.utcoffset() }# #{ later.utcoffset() }# #{ later.utcoffset().total_seconds() }# #{ [at.utcoffset(), later.utcoffset()] }# #{ later.tzname() }#\n#{ at.isoformat(' ') }# #{ at.isoformat(timespec='minutes') }# #{ later.isoformat(sep='_', timespec='milliseconds') }# #{ later.isoformat('T', 'hours') }# #{ at.time().isoformat() }# #{ at.time().strftime('%H.%M') }# #{ '{:%Y/%m}'.format(day) }#\n",
    ),
    (
        "floats-in-lists",
        "#{ [huge, tiny, whole, ratio, 1e16, -0.0] }# #{ {'a': huge} }# #{ (tiny, [tiny]) }# #{ huge | string }# #{ '%s' % huge }#\n",
    ),
    (
        "pprint-lines",
        "#{ nodes | pprint }#\n#{ nested | pprint }#\n#{ ('word ' * 30) | pprint }#\n#{ {'k': lines * 5, 'j': ('x' * 70, 'y' * 20), 'l': ['word ' * 30]} | pprint }#\n#{ [] | pprint }# #{ (1,) | pprint }# #{ none | pprint }#\n",
    ),
    (
        "repr-of-texts",
        "#{ [title, unicode, \"it's\", \"both ' and \\\"\", 'tab\\t', '\\x07', 'a\u{a0}b', '\u{200b}', 'back\\\\'] }# #{ unicode.encode('utf-8') }# #{ [name.encode()] }# #{ unicode.encode().decode('utf-8') }# #{ name.encode().hex() }#\n",
    ),
    (
        "namespace-shown",
        "#{ namespace(a=1) }# #% set ns = namespace(l=[1]) %##{ [ns] }#\n",
    ),
    (
        "macro-default-of-argument",
        "#% macro m(a, b=a ~ 'x', c=[a, b]) -%# #{ a }#-#{ b }#-#{ c }# #%- endmacro %##{ m(1) }# #{ m(1, 2) }# #{ m(1, c=3) }# #{ m(a='z') }#\n#% macro v(a, b=a) %##{ varargs }##{ kwargs }##{ b }##% endmacro %##{ v(1, 2, 3, z=4) }##{ v(5) }#\n",
    ),
    (
        "dict-of-pairs",
        "#{ dict([('a', 1), ('b', 2)]) }# #{ dict([['a', 1]], c=3) }# #{ dict({'x': 1}, y=2) }# #{ dict() }# #{ dict(nested.items()) == nested }#\n",
    ),
    (
        "copies",
        "#{ numbers.copy() }# #{ nested.copy() }# #{ {'b': 1, 'a': 2}.copy() }# #{ [1].copy() }#\n",
    ),
    (
        "copies-changed",
        "#% set x = numbers.copy() %##% do x.append(4) %##{ x }# #{ numbers }# #% set y = nested.copy() %##% do y.update(q=1) %##{ y }# #{ nested }#\n",
    ),
    (
        "format-method",
        "#{ '{!r}'.format('q') }# #{ '{0!r:>8}|{1!s}'.format('q', [1.5]) }# #{ '{} {!r} {}'.format(1, 'b', 3) }# #{ '{{}} {a!r}'.format(a=day) }# #{ '{0.year!r} {1[0]!r}'.format(day, numbers) }# #{ '{:.0%} {:%}'.format(0.25, 0.5) }# #{ '{:>5}|{:05d}'.format('a', 7) }#\n",
    ),
    (
        "expandtabs",
        "#{ 'a\\tb\\tccccc\\td'.expandtabs(4) }#|#{ 'a\\tb'.expandtabs() }#|#{ 'a\\n\\tb'.expandtabs(2) }#|#{ 'abcabc'.index('c') }##{ 'abcabc'.rindex('c') }# #{ '12'.isdecimal() }# #{ '1a'.isnumeric() }# #{ 'A b'.istitle() }# #{ 'A B'.istitle() }# #{ 'Ab'.istitle() }# #{ 'aB'.istitle() }# #{ '1a'.isidentifier() }# #{ 'a_1'.isidentifier() }#\n",
    ),
    (
        "groups-shown",
        "#{ nodes | groupby('role') | map('first') | list }# #{ nodes | map(attribute='cores') | list | string }# #{ nodes | groupby('cores') | string | length > 5 }# #{ nodes | groupby('role') }#\n",
    ),
    (
        "raw-lines",
        "a\n#% raw %#\n #{ x }#\n#% endraw %#\nb\n  #% raw %#\n y\n  #% endraw %#\nc\n#%- raw %#\n\n z\n#% endraw +%#\nd #% raw -%#\n e #%- endraw -%#\n f\n",
    ),
    (
        "escapes",
        "#{ 'a\\/b \\d+ \\. \\a\\v\\b\\f \\x41\\101\\u2022\\U0001f600' }#|#{ \"one\\\ntwo\" }#|#{ '%s\\/%s' % (1, 2) }#|#{ '\\é' }#\n",
    ),
    (
        "titles",
        "#{ \"it's o'neil ab1cd x_y ß ﬁx\".title() }# #{ \"it's ab1cd\" | title }# #{ 'abc'.center(10, '*') }#|#{ 'ab'.center(7) }#| #{ 'abcd'.translate({97: 'zz', 98: none, 99: 120}) }#\n",
    ),
    (
        "views",
        "#{ range(3) }# #{ range(1, 10, 3) }# #{ [range(2)] }# #{ range(5, 0, -2) | list }# #{ range(4)[1] }# #{ range(3) | length }# #{ 2 in range(3) }# #{ nested.keys() }# #{ nested.items() }# #{ {'a': none}.values() }# #{ nested.keys() | list }# #{ nested.items() | list | length }# #{ 'b' in nested.keys() }# #{ nested.keys() | sort | join(',') }# #% for k, v in nested.items() %##{ loop.length }##{ k }#;#% endfor %##% for i in range(2) %##{ loop.last }#;#% endfor %# #{ range(3) | map('string') | join }# #{ range(6) | batch(4) | list }# #{ nodes[0].keys() | first }#\n",
    ),
];

/// What differs, and why that is better so. Each is rendered by both, and the difference is kept.
pub(super) const DIFFERENT: &[(&str, &str)] = &[
    // Keys of maps are what everybody means; Python's attributes of a map are its methods.
    (
        "attr-of-map",
        "#{ nodes[0] | attr('name') | default('no') }#\n",
    ),
    // A text, as whoever wrote it meant; Python's loader reads base 60.
    ("base-sixty", "#{ started }# #{ mac }#\n"),
    // `~` is the engine's own, and has no word in common with what is printed: only very large and very small numbers and
    // dates in lists tell.
    ("joined", "#{ 'x' ~ huge }# #{ 'x' ~ [day] }#\n"),
];
