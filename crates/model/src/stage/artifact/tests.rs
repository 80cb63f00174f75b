//! Which files are selected, the limits, and the storage format.

use super::*;

fn set(files: &[(&str, u32, &str)]) -> ArtifactSet {
    let mut set = ArtifactSet::default();
    for (path, mode, content) in files {
        let file = Artifact::new(*mode, content.as_bytes().to_vec());
        set.add(path, file).unwrap();
    }
    set
}

/// Stored sets outlive the code that wrote them: a difference here needs a new format.
#[test]
fn a_stored_set_keeps_its_form() {
    let set = set(&[
        ("kubeconfig", 0o100_644, "apiVersion: v1\n"),
        ("out/run", 0o755, "#!/bin/sh\n"),
    ]);
    let bytes = set.to_bytes();
    insta::assert_snapshot!(String::from_utf8_lossy(&bytes), @r##"
    {"artifacts":1,"files":[{"path":"kubeconfig","mode":384,"size":15},{"path":"out/run","mode":448,"size":10}]}
    apiVersion: v1
    #!/bin/sh
    "##);
    assert_eq!(ArtifactSet::from_bytes(&bytes).unwrap(), set);
    let empty = ArtifactSet::default();
    assert_eq!(ArtifactSet::from_bytes(&empty.to_bytes()).unwrap(), empty);
    let shown = format!("{set:?}");
    assert!(!shown.contains("apiVersion"), "{shown}");
}

#[test]
fn what_is_no_set_is_refused() {
    let bytes = set(&[("a", 0o600, "text"), ("b", 0o600, "")]).to_bytes();
    let check = |bytes: &[u8]| ArtifactSet::from_bytes(bytes).unwrap_err().to_string();
    let short = "the stored artifacts are malformed or truncated";
    for cut in 0..bytes.len() {
        assert_eq!(check(&bytes[..cut]), short, "cut at {cut}");
    }
    assert_eq!(check(&[&bytes[..], b"x"].concat()), short);
    assert_eq!(
        check(b"{\"artifacts\":2,\"files\":[]}\n"),
        "the artifacts have format 2, but this terrane reads format 1"
    );
    for path in ["../a", "/a", "a//b", "a/./b", ""] {
        let head = format!(
            r#"{{"artifacts":1,"files":[{{"path":"{path}","mode":384,"size":0}}]}}{}"#,
            '\n'
        );
        let said = check(head.as_bytes());
        assert!(said.contains("leaves its directory"), "{path}: {said}");
    }
}

#[test]
fn no_more_is_taken_than_may_be_kept() {
    let mut many = ArtifactSet::default();
    for number in 0..MOST_FILES {
        let file = Artifact::new(0o600, Vec::new());
        many.add(&number.to_string(), file).unwrap();
    }
    let one_more = many.add("one more", Artifact::new(0o600, Vec::new()));
    assert_eq!(
        one_more.unwrap_err().to_string(),
        "the limit of 256 files is reached"
    );
    let outside = ArtifactSet::default().add("../a", Artifact::new(0o600, Vec::new()));
    assert_eq!(outside, Err(ArtifactRefusal::Outside));
    let mut large = ArtifactSet::default();
    let half = vec![0; usize::try_from(MOST_BYTES / 2).unwrap()];
    large.add("a", Artifact::new(0o600, half.clone())).unwrap();
    large.add("b", Artifact::new(0o600, half)).unwrap();
    let refused = large.add("c", Artifact::new(0o600, vec![0]));
    assert_eq!(
        refused.unwrap_err().to_string(),
        "the artifacts would exceed 16 MB in total"
    );
}

#[test]
fn which_files_are_meant() {
    #[track_caller]
    fn check(globs: &[&str], fits: &[&str], not: &[&str]) {
        let globs: Vec<String> = globs.iter().map(|glob| (*glob).to_owned()).collect();
        let globs = ArtifactGlobs::new(&globs).unwrap();
        for path in fits {
            assert!(globs.fit(path), "{path}");
        }
        for path in not {
            assert!(!globs.fit(path), "{path}");
        }
    }
    check(
        &["kubeconfig"],
        &["kubeconfig"],
        &["out/kubeconfig", "kubeconfig2"],
    );
    check(&["./kubeconfig"], &["kubeconfig"], &[]);
    check(
        &["*.yaml", "out/**"],
        &["a.yaml", "out/a/b"],
        &["deep/a.yaml"],
    );
    check(
        &["**"],
        &["a", "deep/a"],
        &[
            ".terraform/providers/x",
            ".terraform.lock.hcl",
            "errored.tfstate",
            "terraform.tfstate.backup",
            "~~terrane_override.tf.json",
        ],
    );
    let globs = ArtifactGlobs::new(&["out/*.yaml".to_owned()]).unwrap();
    assert!(globs.lead_through("out") && !globs.lead_through("ou"));
    for outside in ["../kubeconfig", "/etc/passwd"] {
        assert!(
            ArtifactGlobs::new(&[outside.to_owned()]).is_err(),
            "{outside}"
        );
    }
}
