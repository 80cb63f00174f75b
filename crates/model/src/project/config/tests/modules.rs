//! A thousand stacks with separate modules: each module is read once.

use std::sync::Mutex;

use super::*;
use crate::base::tree::{ReadFailure, TreeEntry};

pub(super) fn thousand() -> MemoryTree {
    let mut text = BASE.to_owned();
    let mut tree = MemoryTree::default();
    for n in 0..1000 {
        let inputs = if n > 0 {
            format!("  inputs = {{ v = stack.s{}.output.o }}\n", n - 1)
        } else {
            "  inputs = { v = 1 }\n".to_owned()
        };
        _ = write!(
            text,
            "stack \"s{n}\" {{\n  path   = \"m/s{n}\"\n  target = \"t\"\n  layer  = \"low\"\n{inputs}}}\n"
        );
        tree.insert(
            format!("m/s{n}/main.tf"),
            "variable \"v\" {}\noutput \"o\" { value = var.v }\n",
        );
    }
    tree.insert("terrane.hcl", text);
    tree
}

/// Counts how often each file is read.
struct Counting {
    tree: MemoryTree,
    reads: Mutex<BTreeMap<String, usize>>,
}

impl Tree for Counting {
    fn read(&self, path: &str) -> Result<Vec<u8>, ReadFailure> {
        *self
            .reads
            .lock()
            .unwrap()
            .entry(path.to_owned())
            .or_default() += 1;
        self.tree.read(path)
    }

    fn list(&self, dir: &str) -> Option<Vec<TreeEntry>> {
        self.tree.list(dir)
    }
}

#[test]
fn every_file_of_a_large_project_is_read_once() {
    let tree = Counting {
        tree: thousand(),
        reads: Mutex::default(),
    };
    let loaded = load(&tree, &surroundings(&|_| None));
    assert_eq!(rendered(&loaded), "");
    assert_eq!(loaded.project.unwrap().stacks.len(), 1000);
    let reads = tree.reads.into_inner().unwrap();
    assert_eq!(reads.len(), 1001);
    assert!(reads.values().all(|count| *count == 1));
}

/// OpenTofu reads `main.tofu` instead of `main.tf`. Terraform ignores it.
#[test]
fn each_engine_has_files_of_its_own() {
    let findings = |engine: &str| {
        let mut tree = MemoryTree::default();
        let text = format!(
            "project \"p\" {{\n  id = \"k3v9qd\"\n  engine \"{engine}\" {{}}\n}}\nlayer \"low\" {{ order = 0 }}\n\
             target \"t\" {{ writers = [\"anyone\"] }}\n\
             stack \"s\" {{\n  path = \"s\"\n  target = \"t\"\n  layer = \"low\"\n  inputs = {{ old = 1 }}\n}}\n"
        );
        tree.insert("terrane.hcl", text);
        tree.insert("s/main.tf", "variable \"old\" {}\n");
        tree.insert("s/main.tofu", "variable \"new\" {\n  default = 1\n}\n");
        let loaded = load(&tree, &surroundings(&|_| None));
        loaded
            .findings
            .iter()
            .map(|found| found.code)
            .collect::<Vec<_>>()
    };
    assert_eq!(findings("terraform"), Vec::<&str>::new());
    assert_eq!(findings("tofu"), ["unknown-input"]);
}
