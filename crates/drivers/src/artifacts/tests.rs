//! Artifacts in real directories, with everything an engine may leave there.

use std::os::unix::fs::symlink;

use super::*;

struct Stack {
    root: tempfile::TempDir,
    grounds: ArtifactDir,
}

impl Stack {
    fn new(globs: &[&str]) -> Self {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("stack");
        fs::create_dir(&dir).unwrap();
        let globs: Vec<String> = globs.iter().map(|glob| (*glob).to_owned()).collect();
        let globs = ArtifactGlobs::new(&globs).unwrap();
        let others = BTreeSet::new();
        let grounds = ArtifactDir { dir, globs, others };
        Self { root, grounds }
    }

    fn write(&self, path: &str, text: &str, mode: u32) {
        let place = self.grounds.dir.join(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(&place, text).unwrap();
        fs::set_permissions(place, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn left(&self) -> Vec<String> {
        fn below(dir: &Path, at: &str, found: &mut Vec<String>) {
            for entry in fs::read_dir(dir).unwrap().flatten() {
                let name = format!("{at}{}", entry.file_name().to_str().unwrap());
                if entry.file_type().unwrap().is_dir() {
                    below(&entry.path(), &format!("{name}/"), found);
                    found.push(format!("{name}/"));
                } else {
                    found.push(name);
                }
            }
        }
        let mut found = Vec::new();
        below(&self.grounds.dir, "", &mut found);
        found.sort();
        found
    }
}

fn paths(gathered: &CollectedArtifacts) -> Vec<&str> {
    gathered.set.iter().map(|(path, _)| path).collect()
}

#[test]
fn what_was_gathered_and_cleared_comes_back_as_it_was() {
    let mut stack = Stack::new(&["kubeconfig", "out/**"]);
    stack.write("main.tf", "", 0o644);
    stack.write("kubeconfig", "secret", 0o664);
    stack.write("out/deep/run.sh", "#!/bin/sh", 0o755);
    stack.write("out/.gitkeep", "", 0o644);
    stack.write(".terraform/providers/out", "", 0o644);
    stack.grounds.others.insert("out/.gitkeep".to_owned());
    let gathered = stack.grounds.gather().unwrap();
    assert_eq!(paths(&gathered), ["kubeconfig", "out/deep/run.sh"]);
    assert!(gathered.refused.is_empty());
    stack.grounds.clear().unwrap();
    let source = [
        ".terraform/",
        ".terraform/providers/",
        ".terraform/providers/out",
    ];
    let kept = ["main.tf", "out/", "out/.gitkeep"];
    assert_eq!(stack.left(), [&source[..], &kept[..]].concat());
    stack.grounds.restore(&gathered.set).unwrap();
    let again = stack.grounds.gather().unwrap();
    assert_eq!(again.set, gathered.set);
    let mode = |path: &str| {
        let metadata = fs::metadata(stack.grounds.dir.join(path)).unwrap();
        metadata.permissions().mode() & 0o777
    };
    assert_eq!(
        (mode("kubeconfig"), mode("out/deep/run.sh")),
        (0o600, 0o700)
    );
}

#[test]
fn what_leads_elsewhere_or_is_no_file_is_refused() {
    let stack = Stack::new(&["*.yaml", "out/kubeconfig"]);
    let outside = stack.root.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("kubeconfig"), "not ours").unwrap();
    symlink(outside.join("kubeconfig"), stack.grounds.dir.join("a.yaml")).unwrap();
    symlink(&outside, stack.grounds.dir.join("out")).unwrap();
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        stack.grounds.dir.join("pipe.yaml"),
        rustix::fs::Mode::RUSR,
    )
    .unwrap();
    stack.write("good.yaml", "kept", 0o600);
    let gathered = stack.grounds.gather().unwrap();
    assert_eq!(paths(&gathered), ["good.yaml"]);
    let refused = gathered.refused.iter();
    let refused: Vec<String> = refused
        .map(|(path, why)| format!("{path}: {why}"))
        .collect();
    assert_eq!(
        refused,
        [
            "a.yaml: it is a symbolic link",
            "out: it is a symbolic link",
            "pipe.yaml: it is not a regular file"
        ]
    );
    let mut set = ArtifactSet::default();
    let file = || Artifact::new(0o600, b"ours".to_vec());
    set.add("out/kubeconfig", file()).unwrap();
    let through = stack.grounds.restore(&set).unwrap_err();
    assert_eq!(
        through.to_string(),
        "`out/kubeconfig`: `out` is not a directory"
    );
    let mut set = ArtifactSet::default();
    set.add("a.yaml", file()).unwrap();
    stack.grounds.restore(&set).unwrap();
    let untouched = fs::read_to_string(outside.join("kubeconfig")).unwrap();
    assert_eq!(untouched, "not ours");
}

#[test]
fn one_that_is_too_large_does_not_cost_the_others() {
    let stack = Stack::new(&["*"]);
    stack.write("a", "kept", 0o600);
    stack.write("z", "kept too", 0o600);
    let large = File::create(stack.grounds.dir.join("image")).unwrap();
    large
        .set_len(model::stage::artifact::MOST_BYTES + 1)
        .unwrap();
    let gathered = stack.grounds.gather().unwrap();
    assert_eq!(paths(&gathered), ["a", "z"]);
    assert_eq!(gathered.refused["image"], ArtifactRefusal::Size);
}

#[test]
fn what_is_written_out_is_its_owner_s_alone() {
    let stack = Stack::new(&[]);
    let place = stack.root.path().join("copied/kubeconfig");
    for text in ["first", "second"] {
        let file = Artifact::new(0o644, text.as_bytes().to_vec());
        write_out(&place, &file).unwrap();
        assert_eq!(fs::read_to_string(&place).unwrap(), text);
        let metadata = fs::metadata(&place).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    }
    let left = fs::read_dir(place.parent().unwrap()).unwrap().count();
    assert_eq!(left, 1);
}
