//! A thousand stacks, each with a module of its own, are read once each.

use super::*;
use crate::tree::{Entry, ReadFailure};
use std::cell::RefCell;

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
    reads: RefCell<BTreeMap<String, usize>>,
}

impl Tree for Counting {
    fn read(&self, path: &str) -> Result<Vec<u8>, ReadFailure> {
        *self.reads.borrow_mut().entry(path.to_owned()).or_default() += 1;
        self.tree.read(path)
    }

    fn list(&self, dir: &str) -> Option<Vec<Entry>> {
        self.tree.list(dir)
    }
}

#[test]
fn every_file_of_a_large_project_is_read_once() {
    let tree = Counting {
        tree: thousand(),
        reads: RefCell::default(),
    };
    let loaded = load(&tree, &surroundings(&|_| None));
    assert_eq!(rendered(&loaded), "");
    assert_eq!(loaded.project.unwrap().stacks.len(), 1000);
    assert_eq!(tree.reads.borrow().len(), 1001);
    assert!(tree.reads.borrow().values().all(|count| *count == 1));
}
