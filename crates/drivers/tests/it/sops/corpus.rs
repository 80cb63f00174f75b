//! Documents by chance, of everything that people put into files of secrets; a seed gives them again.

use std::fmt::Write as _;

use testkit::SeededRng;

const KEYS: [&str; 12] = [
    "data",
    "secret",
    "plain",
    "meta",
    "with.dots",
    "\"quoted key\"",
    "db_secret",
    "x_unencrypted",
    "'on'",
    "snake_case",
    "kebab-case",
    "Ünïcode",
];

const VALUES: [&str; 36] = [
    "text",
    "two words",
    "\"123\"",
    "'0x1f'",
    "123",
    "-7",
    "0",
    "9223372036854775807",
    "-9223372036854775808",
    "1.5",
    "-0.25",
    "6.02e23",
    "true",
    "False",
    "\"true\"",
    "yes",
    "~",
    "null",
    "\"\"",
    "2024-02-29",
    "2024-02-29T10:20:30Z",
    "\"2024-02-29\"",
    "12:30:45",
    "\"tab\\there\"",
    "\"line\\nbreak\\n\"",
    "' lead'",
    "'trail '",
    "\"# no comment\"",
    "'it''s'",
    "\"\\\"q\\\" \\\\ back\"",
    "\"h\u{e9}llo \u{2713} \u{1f600}\"",
    "a:b",
    "'a: b'",
    "'- dash'",
    "'*star'",
    "0o17",
];

const COMMENTS: [&str; 5] = [
    "comment-1",
    "comment-2 leave-this",
    "comment-3 hide-this",
    "comment-4: # with marks",
    "comment-5 ü",
];

pub(crate) fn yaml(dice: &mut SeededRng) -> String {
    let mut out = String::new();
    if dice.roll(3) == 0 {
        comment(dice, 0, &mut out);
    }
    map(dice, 0, 0, false, &mut out);
    if dice.roll(3) == 0 {
        comment(dice, 0, &mut out);
    }
    out
}

fn map(dice: &mut SeededRng, indent: usize, depth: usize, goes_on: bool, out: &mut String) {
    let mut keys: Vec<&str> = KEYS.to_vec();
    let mut first = goes_on;
    for _ in 0..=dice.roll(4) {
        let key = keys.remove(dice.place(keys.len()));
        if !first {
            if dice.roll(4) == 0 {
                comment(dice, indent, out);
            }
            pad(indent, out);
        }
        first = false;
        let _ = write!(out, "{key}:");
        match dice.roll(if depth < 3 { 10 } else { 6 }) {
            0..=4 => scalar(dice, out),
            5 => block(dice, indent + 2, out),
            6 | 7 => {
                out.push('\n');
                map(dice, indent + 2, depth + 1, false, out);
            }
            8 => {
                out.push('\n');
                list(dice, indent + 2, depth + 1, out);
            }
            _ => {
                let _ = writeln!(
                    out,
                    " {}",
                    dice.pick(&["{}", "[]", "[a, 2, {b: c}]", "{d: [1, 2]}"])
                );
            }
        }
    }
    if dice.roll(6) == 0 && !goes_on {
        comment(dice, indent, out);
    }
}

fn list(dice: &mut SeededRng, indent: usize, depth: usize, out: &mut String) {
    for _ in 0..=dice.roll(3) {
        if dice.roll(4) == 0 {
            comment(dice, indent, out);
        }
        pad(indent, out);
        out.push('-');
        match dice.roll(if depth < 3 { 4 } else { 2 }) {
            0 | 1 => scalar(dice, out),
            2 => {
                out.push(' ');
                map(dice, indent + 2, depth + 1, true, out);
            }
            _ => block(dice, indent + 2, out),
        }
    }
}

fn scalar(dice: &mut SeededRng, out: &mut String) {
    let _ = write!(out, " {}", dice.pick(&VALUES));
    if dice.roll(6) == 0 {
        let _ = write!(out, " # {}", dice.pick(&COMMENTS));
    }
    out.push('\n');
}

fn block(dice: &mut SeededRng, indent: usize, out: &mut String) {
    let _ = writeln!(out, " {}", dice.pick(&["|", "|-", ">", ">-"]));
    for line in ["-----BEGIN KEY-----", "  # set in", "", "-----END KEY-----"] {
        if !line.is_empty() {
            pad(indent, out);
        }
        let _ = writeln!(out, "{line}");
    }
}

fn comment(dice: &mut SeededRng, indent: usize, out: &mut String) {
    pad(indent, out);
    let _ = writeln!(out, "# {}", dice.pick(&COMMENTS));
    if dice.roll(4) == 0 {
        out.push('\n');
    }
}

fn pad(indent: usize, out: &mut String) {
    out.extend(std::iter::repeat_n(' ', indent));
}

pub(crate) fn json(dice: &mut SeededRng) -> String {
    let mut out = String::new();
    json_map(dice, 0, &mut out);
    out
}

fn json_map(dice: &mut SeededRng, depth: usize, out: &mut String) {
    const KEYS: [&str; 8] = [
        "data",
        "secret",
        "plain",
        "with.dots",
        "x_unencrypted",
        "db_secret",
        "\u{dc}",
        "meta",
    ];
    out.push('{');
    let mut keys: Vec<&str> = KEYS.to_vec();
    for position in 0..=dice.roll(5) {
        if position > 0 {
            out.push(',');
        }
        let key = keys.remove(dice.place(keys.len()));
        let _ = write!(out, "\"{key}\":");
        json_value(dice, depth, out);
    }
    out.push('}');
}

fn json_value(dice: &mut SeededRng, depth: usize, out: &mut String) {
    const VALUES: [&str; 14] = [
        "\"text\"",
        "\"\"",
        "1",
        "-9223372036854775808",
        "9223372036854775807",
        "1.5",
        "-2.5e-3",
        "true",
        "false",
        "null",
        "\"<&> \\u2028 \\\"q\\\"\"",
        "\"a\\nb\\tc\"",
        "\"\u{1f600}\"",
        "\"123\"",
    ];
    match dice.roll(if depth < 3 { 8 } else { 5 }) {
        0..=4 => out.push_str(dice.pick(&VALUES)),
        5 => out.push_str(dice.pick(&["{}", "[]"])),
        6 => json_map(dice, depth + 1, out),
        _ => {
            out.push('[');
            json_value(dice, depth + 1, out);
            out.push(',');
            json_map(dice, depth + 1, out);
            out.push(']');
        }
    }
}

/// Lines as programs read them: no quotes, `\n` for a line break.
pub(crate) fn dotenv(dice: &mut SeededRng) -> String {
    const VALUES: [&str; 12] = [
        "text",
        "",
        "two words",
        "a=b=c",
        "123",
        "true",
        "h\u{e9}llo \u{2713} \u{1f600}",
        "one\\ntwo\\nthree",
        "\"quoted\"",
        "'single'",
        "#no comment",
        "https://example.io/?a=1&b=%20",
    ];
    let mut out = String::new();
    for number in 0..=dice.roll(8) {
        if dice.roll(4) == 0 {
            let _ = writeln!(out, "# {}", dice.pick(&COMMENTS));
        }
        let end = dice.pick(&["", "_unencrypted", "_secret"]);
        let _ = writeln!(out, "KEY{number}{end}={}", dice.pick(&VALUES));
    }
    out
}

/// Sections with keys in line, as both tools write them.
pub(crate) fn ini(dice: &mut SeededRng) -> String {
    const VALUES: [&str; 8] = [
        "text",
        "two words",
        "123",
        "true",
        "h\u{e9}llo \u{2713}",
        "a=b",
        "https://example.io/?a=1",
        "x-y_z",
    ];
    let mut out = String::new();
    for section in 0..=dice.roll(3) {
        if section > 0 {
            out.push('\n');
        }
        if dice.roll(3) == 0 {
            let _ = writeln!(out, "; {}", dice.pick(&COMMENTS));
        }
        let _ = writeln!(out, "[section{section}]");
        for key in 0..=dice.roll(4) {
            if dice.roll(4) == 0 {
                let _ = writeln!(out, "; {}", dice.pick(&COMMENTS));
            }
            let _ = writeln!(out, "key{key} = {}", dice.pick(&VALUES));
        }
    }
    out
}
