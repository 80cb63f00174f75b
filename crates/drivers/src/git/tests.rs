//! Git with real repositories in temporary directories.

use std::fs;

use tempfile::TempDir;

use super::*;

/// A repository with its own identity and none of the machine's settings.
pub(crate) struct TestRepository {
    pub(crate) dir: TempDir,
}

pub(crate) fn git() -> Git {
    let path = std::env::var("PATH").unwrap();
    Git::new(&BTreeMap::from([("PATH".to_owned(), path)]))
}

impl TestRepository {
    pub(crate) fn new() -> Self {
        let repository = Self {
            dir: TempDir::new().unwrap(),
        };
        repository.git(&["init", "-q", "-b", "main"]);
        repository
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn write(&self, path: &str, content: &str) -> &Self {
        let place = self.path().join(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, content).unwrap();
        self
    }

    pub(crate) fn remove(&self, path: &str) -> &Self {
        fs::remove_file(self.path().join(path)).unwrap();
        self
    }

    pub(crate) fn git(&self, args: &[&str]) -> String {
        run(self.path(), args)
    }

    pub(crate) fn commit(&self, message: &str) -> String {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", message]);
        self.git(&["rev-parse", "HEAD"])
    }

    pub(crate) fn open(&self, project: &str) -> Repository {
        git()
            .repository(&self.path().join(project))
            .unwrap()
            .unwrap()
    }

    fn changed(&self, project: &str, base: &str) -> String {
        let changed = self.open(project).changed_since(base).unwrap();
        changed.into_iter().collect::<Vec<_>>().join(" ")
    }
}

pub(crate) fn run(dir: &Path, args: &[&str]) -> String {
    let settings = [
        "-c",
        "user.name=test",
        "-c",
        "user.email=test@example.io",
        "-c",
        "protocol.file.allow=always",
        "-c",
        "commit.gpgsign=false",
    ];
    let args: Vec<&str> = settings.iter().chain(args).copied().collect();
    let called = git().call(dir, &args).unwrap();
    called.line("run a test's git").unwrap()
}

#[test]
fn head_branch_and_dirt() {
    let repository = TestRepository::new();
    let open = repository.open("");
    assert_eq!(open.head().unwrap(), None);
    assert_eq!(open.head_commit().unwrap(), None);
    assert_eq!(open.branch().unwrap().as_deref(), Some("main"));
    repository.write("a.tf", "1").write(".gitignore", "*.log\n");
    assert!(open.is_dirty().unwrap());
    let commit = repository.commit("first");
    repository.write("x.log", "ignored");
    assert_eq!(open.head().unwrap(), Some(commit.clone()));
    let subject = "first".to_owned();
    assert_eq!(open.head_commit().unwrap(), Some((commit, subject)));
    assert!(!open.is_dirty().unwrap());
    repository.git(&["checkout", "-q", "--detach"]);
    assert_eq!(open.branch().unwrap(), None);
}

#[test]
fn a_project_below_the_top() {
    let repository = TestRepository::new();
    repository.write("infra/a.tf", "1").write("docs/x.md", "1");
    repository.commit("first");
    repository.write("docs/x.md", "2");
    let open = repository.open("infra");
    assert_eq!(open.prefix, "infra/");
    assert_eq!(open.top(), repository.path().canonicalize().unwrap());
    assert!(open.common_dir().ends_with(".git"));
    assert!(!open.is_dirty().unwrap());
}

#[test]
fn outside_of_git() {
    let dir = TempDir::new().unwrap();
    assert!(git().repository(dir.path()).unwrap().is_none());
    fs::write(dir.path().join(".git"), "not what it seems").unwrap();
    let err = git().repository(dir.path()).unwrap_err();
    assert!(
        err.to_string()
            .starts_with("could not find the Git repository: ")
    );
}

#[test]
fn a_link_to_the_project() {
    let repository = TestRepository::new();
    repository.write("infra/a.tf", "1");
    let other = TempDir::new().unwrap();
    let link = other.path().join("link");
    std::os::unix::fs::symlink(repository.path().join("infra"), &link).unwrap();
    let open = git().repository(&link).unwrap().unwrap();
    assert_eq!(open.prefix, "infra/");
    assert!(open.root().starts_with(open.top()));
}

#[test]
fn a_worktree_shares_the_common_directory() {
    let repository = TestRepository::new();
    repository.commit("first");
    let other = TempDir::new().unwrap();
    let place = other.path().join("tree");
    repository.git(&["worktree", "add", "-q", place.to_str().unwrap()]);
    let open = git().repository(&place).unwrap().unwrap();
    assert_eq!(open.common_dir(), repository.open("").common_dir());
    assert_eq!(open.top(), place.canonicalize().unwrap());
}

#[test]
fn everything_that_differs_counts() {
    let repository = TestRepository::new();
    repository
        .write(".gitignore", "*.ignored\n")
        .write("same.tf", "1")
        .write("edited.tf", "1")
        .write("staged.tf", "1")
        .write("deleted.tf", "1")
        .write(
            "old name.tf",
            "a long enough text to be found again as a rename",
        );
    let base = repository.commit("first");
    repository.write("committed.tf", "1");
    repository.commit("second");
    repository
        .write("staged.tf", "2")
        .git(&["add", "staged.tf"]);
    repository.git(&["mv", "old name.tf", "grün.tf"]);
    repository
        .remove("deleted.tf")
        .write("edited.tf", "2")
        .write("new dir/untracked.tf", "1")
        .write("x.ignored", "1");
    assert_eq!(
        repository.changed("", &base),
        "committed.tf deleted.tf edited.tf grün.tf new dir/untracked.tf old name.tf staged.tf"
    );
}

#[test]
fn paths_are_relative_to_the_project() {
    let repository = TestRepository::new();
    repository
        .write("infra/net/a.tf", "1")
        .write("docs/x.md", "1");
    let base = repository.commit("first");
    repository
        .write("infra/net/a.tf", "2")
        .write("infra/new.tf", "1")
        .write("docs/x.md", "2")
        .write("other.md", "1");
    assert_eq!(repository.changed("infra", &base), "net/a.tf new.tf");
}

#[test]
fn submodules_are_looked_into() {
    let library = TestRepository::new();
    library.write("net/main.tf", "1").write("dns/main.tf", "1");
    library.commit("library");
    let repository = TestRepository::new();
    let url = library.path().to_str().unwrap();
    repository.git(&["submodule", "--quiet", "add", url, "lib"]);
    let base = repository.commit("first");
    assert_eq!(repository.changed("", &base), "");
    repository.write("lib/net/main.tf", "2");
    assert_eq!(repository.changed("", &base), "lib lib/net/main.tf");
    let sub = repository.path().join("lib");
    run(&sub, &["commit", "-qam", "edit"]);
    repository.commit("move the submodule");
    repository.write("lib/new.tf", "1");
    assert_eq!(
        repository.changed("", &base),
        "lib lib/net/main.tf lib/new.tf"
    );
}

#[test]
fn a_new_submodule_counts_with_its_files() {
    let library = TestRepository::new();
    library.write("main.tf", "1");
    library.commit("library");
    let repository = TestRepository::new();
    let base = repository.commit("first");
    let url = library.path().to_str().unwrap();
    repository.git(&["submodule", "--quiet", "add", url, "lib"]);
    assert_eq!(repository.changed("", &base), ".gitmodules lib lib/main.tf");
}

#[test]
fn the_base_is_where_the_branch_began() {
    let repository = TestRepository::new();
    let base = repository.commit("first");
    repository.git(&["checkout", "-q", "-b", "work"]);
    repository.write("work.tf", "1");
    repository.commit("work");
    repository.git(&["checkout", "-q", "main"]);
    repository.write("main.tf", "1");
    repository.commit("main moved");
    repository.git(&["checkout", "-q", "work"]);
    assert_eq!(repository.open("").merge_base("main").unwrap(), base);
    assert_eq!(repository.changed("", &base), "work.tf");
}

fn told(err: &GitError) -> String {
    format!("{err}; {}", err.hint().unwrap_or_default())
}

#[test]
fn revisions_that_do_not_help() {
    let repository = TestRepository::new();
    repository.commit("first");
    let open = repository.open("");
    assert_eq!(
        told(&open.merge_base("nope").unwrap_err()),
        "`nope` is not a commit that this clone has; if it is on the remote: `git fetch origin nope`"
    );
    assert!(open.merge_base("--all").is_err());
    repository.git(&["checkout", "-q", "--orphan", "stranger"]);
    repository.commit("stranger");
    assert_eq!(
        told(&open.merge_base("main").unwrap_err()),
        "`main` and `HEAD` have no common commit; "
    );
}

#[test]
fn a_shallow_clone_says_how_to_deepen() {
    let origin = TestRepository::new();
    origin.commit("first");
    origin.git(&["checkout", "-q", "-b", "work"]);
    origin.commit("work");
    origin.git(&["checkout", "-q", "main"]);
    origin.commit("main moved");
    let dir = TempDir::new().unwrap();
    let url = format!("file://{}", origin.path().display());
    let clone = dir.path().join("clone");
    let args = ["clone", "-q", "--depth=1", "--no-single-branch", &url];
    run(
        dir.path(),
        &[&args[..], &[clone.to_str().unwrap()]].concat(),
    );
    let open = git().repository(&clone).unwrap().unwrap();
    let remedy =
        "`git fetch --unshallow` fetches the whole history, `git fetch --deepen=100` a part of it";
    assert_eq!(
        told(&open.merge_base("origin/work").unwrap_err()),
        format!("`origin/work` and `HEAD` have no common commit in this shallow clone; {remedy}")
    );
    assert_eq!(
        told(&open.merge_base("HEAD~1").unwrap_err()),
        format!("`HEAD~1` is not a commit that this clone has; {remedy}")
    );
}
