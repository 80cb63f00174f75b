//! Both trees give the same answers for the same files, from a directory and from a commit.

use std::os::unix::fs::symlink;

use super::*;
use crate::git::tests::TestRepository;

fn repository() -> TestRepository {
    let repository = TestRepository::new();
    repository
        .write("project/terrane.hcl", "project")
        .write("project/infra/net/main.tf", "net")
        .write("project/infra/grün.tf", "green")
        .write("outside.tf", "outside");
    let link = |target: &str, at: &str| symlink(target, repository.path().join(at)).unwrap();
    link("infra/net", "project/alias");
    link("net/main.tf", "project/infra/link.tf");
    link("../outside.tf", "project/escape.tf");
    link("/etc", "project/etc");
    link("nowhere", "project/dangling");
    repository
}

fn shown(tree: &dyn Tree, dir: &str) -> String {
    let Some(entries) = tree.list(dir) else {
        return "no such directory".to_owned();
    };
    let mark = |entry: &TreeEntry| format!("{}{}", entry.name, if entry.is_dir { "/" } else { "" });
    entries.iter().map(mark).collect::<Vec<_>>().join(" ")
}

fn check(tree: &dyn Tree) {
    let read = |path: &str| {
        tree.read(path)
            .map(|bytes| String::from_utf8(bytes).unwrap())
    };
    assert_eq!(read("terrane.hcl").unwrap(), "project");
    assert_eq!(read("infra/grün.tf").unwrap(), "green");
    assert_eq!(read("infra/link.tf").unwrap(), "net");
    assert_eq!(read("alias/main.tf").unwrap(), "net");
    for path in [
        "nope.tf",
        "escape.tf",
        "etc/passwd",
        "../outside.tf",
        "infra/../terrane.hcl",
    ] {
        assert_eq!(read(path), Err(ReadFailure::Missing), "{path}");
    }
    assert_eq!(shown(tree, "infra"), "grün.tf link.tf net/");
    assert_eq!(shown(tree, "alias"), "main.tf");
    assert_eq!(shown(tree, "nope"), "no such directory");
    assert_eq!(shown(tree, "etc"), "no such directory");
    assert!(shown(tree, "").starts_with("alias/ "));
    assert!(shown(tree, "").ends_with("infra/ terrane.hcl"));
}

#[test]
fn a_directory() {
    let repository = repository();
    let tree = DirTree::new(&repository.path().join("project")).unwrap();
    check(&tree);
    assert_eq!(shown(&tree, ""), "alias/ infra/ terrane.hcl");
    for (path, leads_out) in [
        ("etc", true),
        ("etc/apt", true),
        ("escape.tf", true),
        ("alias", false),
        ("infra/net", false),
        ("dangling", false),
        ("nope", false),
        ("../outside.tf", false),
    ] {
        assert_eq!(tree.leads_out(path), leads_out, "{path}");
    }
}

#[test]
fn a_commit() {
    let repository = repository();
    let commit = repository.commit("first");
    repository.write("project/terrane.hcl", "changed since");
    let tree = CommitTree::new(&repository.open("project"), &commit).unwrap();
    check(&tree);
}

#[test]
fn only_so_much_of_a_file() {
    let repository = TestRepository::new();
    let length = usize::try_from(LIMIT).unwrap();
    repository.write("fits", &"x".repeat(length));
    repository.write("large", &"x".repeat(length + 1));
    let commit = repository.commit("first");
    let dir = DirTree::new(repository.path()).unwrap();
    let committed = CommitTree::new(&repository.open(""), &commit).unwrap();
    for tree in [&dir as &dyn Tree, &committed] {
        assert_eq!(
            tree.read("large"),
            Err(ReadFailure::TooLarge { limit: LIMIT })
        );
        assert_eq!(tree.read("fits").unwrap().len(), length);
    }
}

#[test]
fn a_pipe_is_not_waited_for() {
    let dir = tempfile::TempDir::new().unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let place = dir.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &place, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let tree = DirTree::new(dir.path()).unwrap();
    let failure = ReadFailure::Other("it is not a file".to_owned());
    assert_eq!(tree.read("pipe"), Err(failure));
}

#[test]
fn work_that_is_shared_out_is_done_once_each() {
    let dir = tempfile::tempdir().unwrap();
    let tree = DirTree::new(dir.path()).unwrap();
    for count in [0, 1, WORTH_THREADS, 1000] {
        let done: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
        tree.share_out(count, &|at| {
            done[at].fetch_add(1, Ordering::Relaxed);
        });
        assert!(done.iter().all(|times| times.load(Ordering::Relaxed) == 1));
    }
}
