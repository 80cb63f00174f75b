//! Randomly corrupted files: the reader always returns a result.

use super::*;

/// Change this to reproduce a failure; the failing seed is printed.
const SEED: u64 = 0x7e55_a11e;
const CASES: u64 = 4000;

/// A small random generator: the same seed gives the same run everywhere.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(limit.max(1)).unwrap()).unwrap()
    }
}

const TOKENS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "\"",
    "${",
    "%{",
    "%{if true}",
    "%{endif}",
    "$${",
    "\\",
    "\n",
    "\r\n",
    "=",
    "==",
    "=>",
    "?",
    ":",
    ",",
    ".",
    "...",
    "-",
    "!",
    "&&",
    "<<EOT\n",
    "EOT\n",
    "<<-X\n",
    "#",
    "//",
    "/*",
    "*/",
    "for a in ",
    "each.key",
    "stack.",
    "stack[\"",
    "output.",
    "null",
    "1e999",
    "-0",
    "18446744073709551616",
    "env(\"X\")",
    "secret(\"file:x\")",
    "file(\"../x\")",
    "\u{feff}",
    "é",
    "\u{0}",
    "[*]",
    "stack \"",
    "for_each",
    "gate \"dns\" \"x\" {\n",
];

fn mutate(chance: &mut Chance, text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=chance.below(6) {
        let at = chance.below(bytes.len() + 1);
        let end = (at + chance.below(40)).min(bytes.len());
        match chance.below(5) {
            0 => drop(bytes.drain(at..end)),
            1 => drop(bytes.splice(at..at, TOKENS[chance.below(TOKENS.len())].bytes())),
            2 => {
                let copy = bytes[at..end].to_vec();
                let to = chance.below(bytes.len() + 1);
                drop(bytes.splice(to..to, copy));
            }
            3 if at < bytes.len() => bytes[at] = u8::try_from(chance.below(256)).unwrap(),
            _ => drop(bytes.splice(at..end, TOKENS[chance.below(TOKENS.len())].bytes())),
        }
    }
    bytes
}

#[test]
fn chance_finds_no_panic() {
    let corpus = [
        include_str!("example.hcl"),
        "project \"p\" {}\nstack \"a\" {\n  for_each = [\"x\", \"y\"]\n  path = \"m\"\n  inputs = { v = \"${upper(each.key)}-%{ if true ~} a %{ else } b %{ endif }\" }\n}\n",
        "stack \"b\" {\n  path = \"m\"\n  after = [for n in [\"a\"] : stack[n] if n != \"z\"]\n  inputs = merge({ v = <<-EOT\n    a ${stack.a.output.o}\n    EOT\n  }, { for k, w in { x = 1 } : k => w })\n}\n",
        "variable \"v\" {\n  type = object({ a = optional(list(string), []) })\n  default = {}\n}\nlocals { x = file(\"${path.module}/y\") }\noutput \"o\" { value = var.v[*].a }\n",
    ];
    for case in 0..CASES {
        let seed = SEED.wrapping_add(case);
        let mut chance = Chance(seed);
        let text = corpus[chance.below(corpus.len())];
        let bytes = mutate(&mut chance, text);
        let run = std::panic::catch_unwind(|| {
            let mut tree = MemoryTree::default();
            tree.insert("terrane.hcl", bytes.clone());
            tree.insert("m/main.tf", bytes.clone());
            tree.insert("m/stack.hcl", bytes.clone());
            tree.insert("m/v.tofu.json", bytes.clone());
            let loaded = load_tree(&tree);
            for place in loaded.findings.iter().flat_map(|finding| &finding.places) {
                assert!(place.at.line >= 1 && place.at.column >= 1);
            }
            if let Some(project) = &loaded.project {
                for input in project
                    .stacks
                    .values()
                    .flat_map(|stack| stack.inputs.values())
                {
                    drop(crate::hcl::stored_expression::evaluate(
                        input,
                        &values::Fixed,
                    ));
                }
            }
        });
        assert!(
            run.is_ok(),
            "seed {seed:#x} panics on {:?}",
            String::from_utf8_lossy(&bytes)
        );
    }
}
