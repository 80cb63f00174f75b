//! Which engine is chosen, and the errors when none meets the requirement.

use std::ffi::OsString;
use std::fs;

use model::base::error::Explain;
use model::project::engine::EngineRequirement;

use super::*;

/// A machine with fake engines that only report a version and count their calls.
struct Machine {
    dir: tempfile::TempDir,
    path: Vec<PathBuf>,
}

impl Machine {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            path: Vec::new(),
        }
    }

    fn on_path(mut self, dir: &str, program: &str, body: &str) -> Self {
        let dir = self.dir.path().join(dir);
        write_script(&dir.join(program), body);
        self.path.push(dir);
        self
    }

    fn in_cache(self, program: &str, version: &str) -> Self {
        let place = format!("cache/engines/{program}/{version}/{program}");
        write_script(&self.dir.path().join(place), "exit 1");
        self
    }

    fn look(&self, requirement: &str) -> String {
        let (flavor, constraint) = requirement.split_once(' ').unwrap_or((requirement, ""));
        let requirement = EngineRequirement {
            flavor: flavor.parse().unwrap(),
            constraint: (!constraint.is_empty()).then(|| constraint.parse().unwrap()),
        };
        let path: OsString = std::env::join_paths(&self.path).unwrap();
        let cache = self.dir.path().join("cache");
        let seen = match locate(&requirement, &EngineSearch::new(Some(&path), &cache)) {
            Ok(engine) => format!("{engine} {:?} {}", engine.origin, engine.program.display()),
            Err(err) => format!("{err}\nhint: {}", err.hint().unwrap()),
        };
        seen.replace(self.dir.path().to_str().unwrap(), "")
    }
}

fn write_script(path: &Path, body: &str) {
    testkit::write_program(path, &format!("#!/bin/sh\n{body}\n"));
}

fn tells(version: &str) -> String {
    format!("echo '{{\"terraform_version\":\"{version}\"}}'")
}

#[test]
fn path_first_then_the_newest_of_the_cache() {
    let machine = Machine::new()
        .on_path("old", "tofu", &tells("1.9.0"))
        .on_path("bin", "tofu", &tells("1.11.2"))
        .in_cache("tofu", "1.11.14")
        .in_cache("tofu", "1.12.0")
        .in_cache("tofu", ".install-x");
    let check = |requirement, expected: &str| assert_eq!(machine.look(requirement), expected);
    check("tofu", "tofu 1.9.0 Path /old/tofu");
    check("tofu ~> 1.11", "tofu 1.11.2 Path /bin/tofu");
    check(
        "tofu > 1.11.2",
        "tofu 1.12.0 Cache /cache/engines/tofu/1.12.0/tofu",
    );
    check(
        "tofu ~> 1.11.3",
        "tofu 1.11.14 Cache /cache/engines/tofu/1.11.14/tofu",
    );
}

#[test]
fn what_is_missing_is_said_with_the_remedy() {
    let machine = Machine::new()
        .on_path("bin", "tofu", &tells("1.9.0"))
        .on_path("broken", "terraform", "echo cannot run >&2; exit 3")
        .in_cache("tofu", "1.11.14");
    insta::assert_snapshot!(machine.look("tofu ~> 1.12"), @"
    `tofu ~> 1.12` is required, but there is only 1.9.0 at `/bin/tofu`, 1.11.14 at `/cache/engines/tofu/1.11.14/tofu`
    hint: `terrane engine install` installs a suitable version
    ");
    insta::assert_snapshot!(machine.look("terraform"), @"
    cannot read the version of `/broken/terraform`: exit code 3, cannot run
    hint: repair or remove `/broken/terraform`; `terrane engine install` installs a suitable version
    ");
    insta::assert_snapshot!(Machine::new().look("tofu = 1.11.4"), @"
    there is no `tofu = 1.11.4`: neither on `PATH` nor in `/cache/engines`
    hint: `terrane engine install` installs a suitable version
    ");
}

#[test]
fn a_version_is_asked_for_once() {
    let Some(engine) = engines().into_iter().next() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let bin = dir.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let program = bin.join(engine.flavor.program());
    testkit::copy_program(&engine.program, &program);
    let cache = dir.path().join("cache");
    let requirement = EngineRequirement {
        flavor: engine.flavor,
        constraint: None,
    };
    let search = EngineSearch::new(Some(bin.as_os_str()), &cache);
    assert_eq!(
        locate(&requirement, &search).unwrap().version,
        engine.version
    );

    let memory = cache.join("engines/versions.json");
    let text = fs::read_to_string(&memory).unwrap();
    fs::write(&memory, text.replace(&engine.version.to_string(), "7.7.7")).unwrap();
    assert_eq!(
        locate(&requirement, &search).unwrap().version,
        semver::Version::new(7, 7, 7)
    );

    // A changed file is run again.
    fs::OpenOptions::new()
        .append(true)
        .open(&program)
        .unwrap()
        .set_len(fs::metadata(&program).unwrap().len() + 1)
        .unwrap();
    assert_eq!(
        locate(&requirement, &search).unwrap().version,
        engine.version
    );
}
