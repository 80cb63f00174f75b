//! Snapshots of real directories and repositories, and the slots in which they are laid out.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;
use crate::git::tests::TestRepository;

fn shown(snapshot: &Snapshot) -> String {
    let mark = |file: &SnapshotFile| match file.kind {
        FileKind::Plain => file.path.clone(),
        FileKind::Executable => format!("{}*", file.path),
        FileKind::Link => format!("{}@", file.path),
    };
    snapshot
        .files
        .iter()
        .map(mark)
        .collect::<Vec<_>>()
        .join(" ")
}

fn extras(stack_dirs: &[&str], include: &[&str]) -> ExtraFiles {
    let owned = |list: &[&str]| list.iter().map(|item| (*item).to_owned()).collect();
    ExtraFiles {
        stack_dirs: owned(stack_dirs),
        include: include
            .iter()
            .map(|item| vec![(*item).to_owned()])
            .collect(),
    }
}

fn taken(repository: &TestRepository, project: &str, extras: &ExtraFiles) -> Snapshot {
    let open = repository.open(project);
    collect(open.root(), Some(&open), extras).unwrap()
}

#[test]
fn what_git_knows_and_what_stacks_name() {
    let repository = TestRepository::new();
    repository
        .write(".gitignore", "*.tfvars\nsecret*\n")
        .write("net/main.tf", "1")
        .write("net/deleted.tf", "1")
        .write("net/committed.tfstate", "state");
    repository.git(&["add", "-f", "net/committed.tfstate"]);
    repository.commit("first");
    repository
        .remove("net/deleted.tf")
        .write("net/untracked.tf", "1")
        .write("net/terraform.tfvars", "1")
        .write("net/eu.auto.tfvars", "1")
        .write("net/other.tfvars", "1")
        .write("net/secrets/a.txt", "1")
        .write("net/secrets/deep/b.txt", "1")
        .write("net/secret.txt", "1")
        .write("net/.terraform/modules/x.tf", "1")
        .write("net/terraform.tfstate.backup", "1")
        .write("net/out.tfplan", "1")
        .write(
            "net/plan.zip",
            "PK\u{3}\u{4}..........................tfplan",
        )
        .write(".terrane/cache", "1");
    let plain = taken(&repository, "", &ExtraFiles::default());
    assert_eq!(shown(&plain), ".gitignore net/main.tf net/untracked.tf");
    let extras = extras(
        &["net", "gone"],
        &["net/secrets/*.txt", "net/secret.txt", "absent"],
    );
    assert_eq!(
        shown(&taken(&repository, "", &extras)),
        ".gitignore net/eu.auto.tfvars net/main.tf net/secret.txt net/secrets/a.txt \
         net/terraform.tfvars net/untracked.tf"
    );
}

#[test]
fn what_is_not_beside_a_stack_is_included_from_the_root() {
    let repository = TestRepository::new();
    repository
        .write(".gitignore", "*.key\n")
        .write("net/main.tf", "1");
    repository.commit("first");
    repository
        .write("net/own.key", "1")
        .write("own.key", "1")
        .write("certs/ca.key", "1");
    let pair = |name: &str| vec![format!("net/{name}"), name.to_owned()];
    let extras = ExtraFiles {
        include: vec![pair("own.key"), pair("certs/*.key")],
        ..ExtraFiles::default()
    };
    assert_eq!(
        shown(&taken(&repository, "", &extras)),
        ".gitignore certs/ca.key net/main.tf net/own.key"
    );
}

#[test]
fn a_project_below_the_top_ends_at_its_root() {
    let repository = TestRepository::new();
    repository
        .write("infra/main.tf", "1")
        .write("docs/x.md", "1");
    let snapshot = taken(&repository, "infra", &ExtraFiles::default());
    assert_eq!(shown(&snapshot), "main.tf");
}

#[test]
fn submodules_belong_in() {
    let library = TestRepository::new();
    library.write("main.tf", "1").write(".gitignore", "*.log\n");
    library.commit("library");
    let repository = TestRepository::new();
    let url = library.path().to_str().unwrap();
    repository.git(&["submodule", "--quiet", "add", url, "lib"]);
    repository.write("lib/new.tf", "1").write("lib/x.log", "1");
    let snapshot = taken(&repository, "", &ExtraFiles::default());
    assert_eq!(
        shown(&snapshot),
        ".gitmodules lib/.gitignore lib/main.tf lib/new.tf"
    );
}

#[test]
fn links_that_stay_inside_belong_in() {
    let repository = TestRepository::new();
    repository.write("a/main.tf", "1").write("b/grün.tf", "1");
    let link = |target: &str, at: &str| symlink(target, repository.path().join(at)).unwrap();
    link("../a/main.tf", "b/main.tf");
    link("a", "dir");
    link("/etc/passwd", "passwd");
    link("../..", "b/up");
    let snapshot = taken(&repository, "", &extras(&["dir"], &[]));
    assert_eq!(shown(&snapshot), "a/main.tf b/grün.tf b/main.tf@ dir@");
    assert_eq!(snapshot.left_out, ["b/up", "passwd"]);
}

#[test]
fn nothing_is_read_through_a_link() {
    let repository = TestRepository::new();
    repository
        .write("dir/main.tf", "1")
        .write("real/main.tf", "1");
    repository.commit("first");
    repository.remove("dir/main.tf");
    fs::remove_dir(repository.path().join("dir")).unwrap();
    symlink("real", repository.path().join("dir")).unwrap();
    let snapshot = taken(&repository, "", &ExtraFiles::default());
    assert_eq!(shown(&snapshot), "dir@ real/main.tf");
    let bytes = snapshot.pack(repository.path()).unwrap();
    assert_eq!(unpack(&bytes).unwrap().len(), 2);
}

#[test]
fn outside_of_git_everything_belongs_in() {
    let dir = TempDir::new().unwrap();
    let write = |path: &str| {
        let place = dir.path().join(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, "1").unwrap();
    };
    for path in [
        "terrane.hcl",
        "net/run.sh",
        "net/.terraform/x",
        "net/terraform.tfstate",
    ] {
        write(path);
    }
    let script = dir.path().join("net/run.sh");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let snapshot = collect(dir.path(), None, &ExtraFiles::default()).unwrap();
    assert_eq!(shown(&snapshot), "net/run.sh* terrane.hcl");
}

#[test]
fn the_digest_is_of_paths_kinds_and_contents() {
    let dir = TempDir::new().unwrap();
    let place = dir.path().join("a");
    let digest = || {
        collect(dir.path(), None, &ExtraFiles::default())
            .unwrap()
            .digest
    };
    fs::write(&place, "1").unwrap();
    let first = digest();
    assert_eq!(first.len(), 64);
    assert_eq!(digest(), first);
    fs::write(&place, "2").unwrap();
    assert_ne!(digest(), first);
    fs::write(&place, "1").unwrap();
    assert_eq!(digest(), first);
    fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
    assert_ne!(digest(), first);
}

#[test]
fn a_pack_round_trips_and_notices_changes() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("a.tf"), "content").unwrap();
    symlink("a.tf", dir.path().join("b.tf")).unwrap();
    let snapshot = collect(dir.path(), None, &ExtraFiles::default()).unwrap();
    let bytes = snapshot.pack(dir.path()).unwrap();
    let files = unpack(&bytes).unwrap();
    assert_eq!(files[0].content, b"content");
    assert_eq!((files[1].path, files[1].kind), ("b.tf", FileKind::Link));
    assert_eq!(pack::digests(&files).0, snapshot.digest);
    fs::write(dir.path().join("a.tf"), "another").unwrap();
    let err = snapshot.pack(dir.path()).unwrap_err();
    assert_eq!(
        err.to_string(),
        "`a.tf` changed while the snapshot was made"
    );
}

#[track_caller]
fn check_unpack(files: &[(&str, FileKind, &str)], expected: &str) {
    let mut pack = pack::Writer::new();
    for (path, kind, content) in files {
        pack.add(path, *kind, content.as_bytes());
    }
    let bytes = pack.finish();
    assert_eq!(unpack(&bytes).unwrap_err().to_string(), expected);
}

#[test]
fn hostile_packs_are_refused() {
    use FileKind::{Link, Plain};
    let path = |path: &str| {
        format!("the pack contains the path `{path}`, which is not allowed in a snapshot")
    };
    for hostile in [
        "../x",
        "/etc/x",
        "a/../../x",
        "a//b",
        "",
        ".git/config",
        "a\0b",
    ] {
        check_unpack(&[(hostile, Plain, "")], &path(hostile));
    }
    check_unpack(&[("a", Link, "b"), ("a/x", Plain, "")], &path("a/x"));
    check_unpack(&[("a", Plain, ""), ("a/x", Plain, "")], &path("a/x"));
    let link = "the link `a/b` in the pack points outside it";
    check_unpack(&[("a/b", Link, "../../x")], link);
    check_unpack(&[("a/b", Link, "/x")], link);
    let malformed = "the data is not a packed snapshot, or it is truncated";
    check_unpack(&[("b", Plain, ""), ("a", Plain, "")], malformed);
    assert!(unpack(b"PK").is_err());
    let mut pack = pack::Writer::new();
    pack.add("a", Plain, b"content");
    let bytes = pack.finish();
    for length in 16..bytes.len() {
        assert!(unpack(&bytes[..length]).is_err());
    }
}

/// A source, a slot, and a counter of pack loads.
struct Story {
    source: TempDir,
    home: TempDir,
    slot: Slot,
    loads: Cell<usize>,
}

impl Story {
    fn new() -> Self {
        let home = TempDir::new().unwrap();
        let (tree, manifest) = (
            home.path().join("deep/tree"),
            home.path().join("manifest.json"),
        );
        Self {
            source: TempDir::new().unwrap(),
            slot: Slot::new(tree, manifest, &["**/kubeconfig".to_owned()]).unwrap(),
            home,
            loads: Cell::new(0),
        }
    }

    fn write(&self, path: &str, content: &str) -> &Self {
        put(self.source.path(), path, content);
        self
    }

    fn leave(&self, path: &str, content: &str) -> &Self {
        put(self.slot.tree(), path, content);
        self
    }

    fn remove(&self, path: &str) -> &Self {
        fs::remove_file(self.source.path().join(path)).unwrap();
        self
    }

    /// Files written, files removed, packs loaded.
    fn lay_out(&self) -> (usize, usize, usize) {
        let root = self.source.path();
        let snapshot = collect(root, None, &ExtraFiles::default()).unwrap();
        self.loads.set(0);
        let load = || {
            self.loads.set(self.loads.get() + 1);
            Ok::<_, Infallible>(snapshot.pack(root).unwrap())
        };
        let laid_out = self.slot.lay_out(&snapshot.digest, load).unwrap();
        (laid_out.written, laid_out.removed, self.loads.get())
    }

    fn tree(&self) -> String {
        let mut seen = BTreeSet::new();
        list(self.slot.tree(), "", &mut seen);
        seen.into_iter().collect::<Vec<_>>().join(" ")
    }
}

fn put(root: &Path, path: &str, content: &str) {
    let place = root.join(path);
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    fs::write(place, content).unwrap();
}

fn list(root: &Path, dir: &str, seen: &mut BTreeSet<String>) {
    for entry in fs::read_dir(root.join(dir)).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{dir}{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            seen.insert(format!("{path}/"));
            list(root, &format!("{path}/"), seen);
        } else {
            seen.insert(path);
        }
    }
}

#[test]
fn a_slot_is_written_once() {
    let story = Story::new();
    story.write("net/main.tf", "1").write("terrane.hcl", "1");
    assert_eq!(story.lay_out(), (2, 0, 1));
    assert_eq!(story.tree(), "net/ net/main.tf terrane.hcl");
    assert_eq!(story.lay_out(), (0, 0, 0));
    let mode = |path: &str| {
        let metadata = fs::metadata(story.slot.tree().join(path)).unwrap();
        metadata.permissions().mode() & 0o777
    };
    assert_eq!(
        (mode(""), mode("net"), mode("net/main.tf")),
        (0o700, 0o700, 0o600)
    );
}

#[test]
fn only_differences_are_written() {
    let story = Story::new();
    story
        .write("a.tf", "1")
        .write("b.tf", "1")
        .write("old/c.tf", "1");
    story.lay_out();
    story
        .write("a.tf", "2")
        .remove("old/c.tf")
        .write("new/d.tf", "1");
    assert_eq!(story.lay_out(), (2, 1, 1));
    assert_eq!(story.tree(), "a.tf b.tf new/ new/d.tf");
    assert_eq!(
        fs::read_to_string(story.slot.tree().join("a.tf")).unwrap(),
        "2"
    );
    assert_eq!(story.lay_out(), (0, 0, 0));
}

#[test]
fn what_was_touched_in_the_slot_is_mended() {
    let story = Story::new();
    story.write("a.tf", "1").write("b.tf", "1");
    story.lay_out();
    story.leave("a.tf", "x").leave("stray/extra.tf", "1");
    assert_eq!(story.lay_out(), (1, 1, 1));
    assert_eq!(story.tree(), "a.tf b.tf");
    assert_eq!(
        fs::read_to_string(story.slot.tree().join("a.tf")).unwrap(),
        "1"
    );
}

#[test]
fn what_the_engine_keeps_stays() {
    let story = Story::new();
    story.write("net/main.tf", "1");
    story.lay_out();
    story
        .leave("net/.terraform/providers/x", "1")
        .leave("net/.terraform.lock.hcl", "by init")
        .leave("net/kubeconfig", "artifact");
    assert_eq!(story.lay_out(), (0, 0, 0));
    story.write("net/main.tf", "2");
    assert_eq!(story.lay_out(), (1, 0, 1));
    assert_eq!(
        story.tree(),
        "net/ net/.terraform.lock.hcl net/.terraform/ net/.terraform/providers/ \
         net/.terraform/providers/x net/kubeconfig net/main.tf"
    );
    // A lock file that came with a snapshot is removed with it.
    story.write("net/.terraform.lock.hcl", "committed");
    assert_eq!(story.lay_out(), (1, 0, 1));
    story.remove("net/.terraform.lock.hcl");
    assert_eq!(story.lay_out(), (0, 1, 1));
}

#[test]
fn files_directories_and_links_trade_places() {
    let story = Story::new();
    story.write("a/x.tf", "1").write("b", "1");
    story.lay_out();
    story.leave("a/.terraform/x", "1");
    fs::remove_dir_all(story.source.path().join("a")).unwrap();
    story.remove("b").write("a", "1").write("b/y.tf", "1");
    story.lay_out();
    assert_eq!(story.tree(), "a b/ b/y.tf");
    story.remove("a");
    symlink("b", story.source.path().join("a")).unwrap();
    story.lay_out();
    assert_eq!(
        fs::read_to_string(story.slot.tree().join("a/y.tf")).unwrap(),
        "1"
    );
}

#[test]
fn nothing_is_written_through_a_link_in_the_slot() {
    let story = Story::new();
    story.write("a.tf", "1").write("dir/b.tf", "1");
    story.lay_out();
    let outside = story.home.path().join("outside");
    fs::create_dir(&outside).unwrap();
    put(&outside, "target", "precious");
    let tree = story.slot.tree();
    fs::remove_file(tree.join("a.tf")).unwrap();
    symlink(outside.join("target"), tree.join("a.tf")).unwrap();
    fs::remove_dir_all(tree.join("dir")).unwrap();
    symlink(&outside, tree.join("dir")).unwrap();
    story.lay_out();
    assert_eq!(
        fs::read_to_string(outside.join("target")).unwrap(),
        "precious"
    );
    assert!(!outside.join("b.tf").exists());
    assert_eq!(story.tree(), "a.tf dir/ dir/b.tf");
}

#[test]
fn a_lost_manifest_costs_a_full_write() {
    let story = Story::new();
    story.write("a.tf", "1").write("b.tf", "1");
    story.lay_out();
    fs::write(story.home.path().join("manifest.json"), "{").unwrap();
    assert_eq!(story.lay_out(), (2, 0, 1));
}

#[test]
fn another_snapshot_than_asked_for_is_refused() {
    let story = Story::new();
    story.write("a.tf", "1");
    let empty = || Ok::<_, Infallible>(pack::Writer::new().finish());
    let err = story.slot.lay_out("abc", empty).unwrap_err();
    assert!(
        err.to_string()
            .starts_with("the loaded snapshot is a different one: expected abc, got ")
    );
    assert!(!story.slot.tree().exists());
}
