//! Real processes: groups, signals, descriptors, environments.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsFd as _;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::run_tail::end_of;
use super::*;

/// A directory with a script in it, and the files it writes to.
struct Stage {
    dir: tempfile::TempDir,
    env: Environment,
}

impl Stage {
    fn new() -> Self {
        let path = std::env::var("PATH").unwrap();
        Self {
            dir: tempfile::tempdir().unwrap(),
            env: [("PATH", path)].into_iter().collect(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn start(&self, script: &str, inherit: &[BorrowedFd<'_>]) -> ChildProcess {
        self.start_by(script, inherit, start)
    }

    fn start_by(
        &self,
        script: &str,
        inherit: &[BorrowedFd<'_>],
        start: impl Fn(&ChildSpec<'_>) -> Result<ChildProcess, StartError>,
    ) -> ChildProcess {
        let spec = ChildSpec {
            program: Path::new("/bin/sh"),
            args: &["-c".into(), script.into()],
            dir: self.dir.path(),
            env: &self.env,
            stdout: &self.path("stdout"),
            stderr: &self.path("stderr"),
            inherit,
        };
        start(&spec).unwrap()
    }

    fn capture(&self, script: &str, timeout: Duration, limit: usize) -> String {
        let args = ["-c".into(), script.into()];
        let said = capture_blocking(&Capture {
            stdin: b"from us",
            timeout,
            limit,
            ..Capture::new(Path::new("/bin/sh"), &args, self.dir.path(), &self.env)
        });
        match said {
            Ok(said) => format!(
                "{}, {:?}, {:?}",
                said.exit,
                said.stdout_text(),
                said.stderr_text()
            ),
            Err(err) => err.to_string(),
        }
    }
}

/// Waits for a condition that must become true.
async fn until(what: impl Fn() -> bool) {
    let waiting = async {
        while !what() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waiting)
        .await
        .expect("it never came");
}

const UNTIL_STOPPED: &str = "while [ ! -e stop ]; do sleep 0.01; done";

#[tokio::test]
async fn a_child_sees_exactly_its_environment() {
    let stage = Stage::new();
    let env: Environment = [("B", "two words"), ("A", "1")].into_iter().collect();
    let mut running = start(&ChildSpec {
        program: Path::new("/usr/bin/env"),
        args: &[],
        dir: stage.dir.path(),
        env: &env,
        stdout: &stage.path("stdout"),
        stderr: &stage.path("stderr"),
        inherit: &[],
    })
    .unwrap();
    assert_eq!(running.wait().await.unwrap(), Exit::Code(0));
    assert_eq!(stage.read("stdout"), "A=1\nB=two words\n");
    assert_eq!(format!("{env:?}"), r#"{"A", "B"}"#);
}

#[tokio::test]
async fn one_interrupt_and_no_second() {
    let stage = Stage::new();
    let script =
        format!("trap 'echo interrupted' INT; echo ready; {UNTIL_STOPPED}; echo end; exit 7");
    let mut running = stage.start(&script, &[]);
    until(|| stage.read("stdout").contains("ready")).await;
    running.interrupt().unwrap();
    assert!(running.was_interrupted());
    until(|| stage.read("stdout").contains("interrupted")).await;
    running.interrupt().unwrap();
    fs::write(stage.path("stop"), "").unwrap();
    assert_eq!(running.wait().await.unwrap(), Exit::Code(7));
    assert_eq!(stage.read("stdout"), "ready\ninterrupted\nend\n");
    running.interrupt().unwrap();
}

#[tokio::test]
async fn an_interrupt_reaches_what_a_script_started() {
    let stage = Stage::new();
    let inner = format!("trap 'echo interrupted; exit 1' INT; echo ready; {UNTIL_STOPPED}");
    let wrapper = format!("#!/bin/sh\nsh -c \"{inner}\"\n");
    testkit::write_program(&stage.path("wrapper"), &wrapper);
    let mut running = start(&ChildSpec {
        program: &stage.path("wrapper"),
        args: &[],
        dir: stage.dir.path(),
        env: &stage.env,
        stdout: &stage.path("stdout"),
        stderr: &stage.path("stderr"),
        inherit: &[],
    })
    .unwrap();
    until(|| stage.read("stdout").contains("ready")).await;
    running.interrupt().unwrap();
    running.wait().await.unwrap();
    until(|| stage.read("stdout") == "ready\ninterrupted\n").await;
}

#[tokio::test]
async fn a_signal_is_told_from_a_code() {
    let stage = Stage::new();
    let mut running = stage.start("kill -9 $$", &[]);
    assert_eq!(running.wait().await.unwrap(), Exit::Signal(9));
}

#[tokio::test]
async fn dropping_leaves_it_running() {
    let stage = Stage::new();
    drop(stage.start(&format!("echo ready; {UNTIL_STOPPED}; echo end"), &[]));
    until(|| stage.read("stdout").contains("ready")).await;
    fs::write(stage.path("stop"), "").unwrap();
    until(|| stage.read("stdout").contains("end")).await;
}

/// The keeper gets no message between the start of the program and our end, which closes the pipe.
#[tokio::test]
async fn a_kept_program_goes_with_us_from_its_first_moment() {
    let stage = Stage::new();
    let group = ProcessGroupGuard::new().unwrap();
    let script = "trap '' INT; sleep 600 & sleep 600";
    let mut running = stage.start_by(script, &[], |spec| group.start(spec));
    drop(group);
    assert_eq!(running.wait().await.unwrap(), Exit::Signal(9));
    let group = running.group().unwrap();
    until(|| signal_group(group, Signal::INT).is_err()).await;
}

/// A keeper that reacted to the interrupt could not kill the group later.
#[tokio::test]
async fn a_kept_program_is_interrupted_and_its_keeper_is_not() {
    let stage = Stage::new();
    let group = ProcessGroupGuard::new().unwrap();
    let script = "trap 'touch heard' INT; touch ready; while :; do sleep 0.05; done";
    let mut running = stage.start_by(script, &[], |spec| group.start(spec));
    let leader = running.group().unwrap();
    until(|| stage.path("ready").exists() && ignores_interrupts(leader)).await;
    signal_group(leader, Signal::INT).unwrap();
    until(|| stage.path("heard").exists()).await;
    drop(group);
    assert_eq!(running.wait().await.unwrap(), Exit::Signal(9));
}

fn ignores_interrupts(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = u64::from_str_radix(ignored.unwrap().trim(), 16).unwrap();
    ignored & (1 << (2 - 1)) != 0
}

#[tokio::test]
async fn what_a_kept_program_left_behind_stays_after_its_own_end() {
    let stage = Stage::new();
    let group = ProcessGroupGuard::new().unwrap();
    let script = "(until [ -e go ]; do sleep 0.05; done; touch went) & exit 0";
    let mut running = stage.start_by(script, &[], |spec| group.start(spec));
    assert!(running.wait().await.unwrap().success());
    group.ended();
    fs::write(stage.path("go"), "").unwrap();
    until(|| stage.path("went").exists()).await;
}

#[tokio::test]
async fn output_has_no_reader_that_could_die() {
    use std::os::unix::fs::PermissionsExt as _;
    let stage = Stage::new();
    fs::write(stage.path("stdout"), "before\n").unwrap();
    let mut running = stage.start(
        "test -f /dev/fd/1 && test -f /dev/fd/2 && echo files; read x || echo no input >&2",
        &[],
    );
    assert_eq!(running.wait().await.unwrap(), Exit::Code(0));
    assert_eq!(stage.read("stdout"), "before\nfiles\n");
    assert_eq!(stage.read("stderr"), "no input\n");
    let mode = fs::metadata(stage.path("stderr"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn an_inherited_lock_is_free_when_all_are_gone() {
    let stage = Stage::new();
    let file = stage.path("run.lock");
    let open = move || {
        File::options()
            .create(true)
            .append(true)
            .open(&file)
            .unwrap()
    };
    let ours = open();
    ours.lock().unwrap();
    let mut heir = stage.start(UNTIL_STOPPED, &[ours.as_fd()]);
    // Started at the same time; it must not inherit the lock.
    let mut other = stage.start("while [ ! -e stop-other ]; do sleep 0.01; done", &[]);
    drop(ours);
    assert!(open().try_lock().is_err(), "the child holds it");
    fs::write(stage.path("stop"), "").unwrap();
    heir.wait().await.unwrap();
    // Blocking: a process that another test starts holds inherited descriptors until its exec. If `other` held the
    // lock, this would never end.
    let free = tokio::task::spawn_blocking(move || open().lock());
    let free = tokio::time::timeout(Duration::from_secs(30), free).await;
    free.expect("nobody holds it").unwrap().unwrap();
    fs::write(stage.path("stop-other"), "").unwrap();
    other.wait().await.unwrap();
}

#[tokio::test]
async fn a_detached_program_gets_its_input_and_is_reaped() {
    let stage = Stage::new();
    let lock = File::create(stage.path("run.lock")).unwrap();
    // More than the buffer of a pipe.
    let values = "x".repeat(300_000);
    let script = "cd \"$1\"; wc -c; echo said >&2";
    let args = ["-c", script, "sh", stage.dir.path().to_str().unwrap()].map(OsString::from);
    let pid = spawn_detached(
        Path::new("/bin/sh"),
        &args,
        &stage.env,
        values.as_bytes(),
        &stage.path("log"),
        &lock,
    )
    .await
    .unwrap();
    until(|| stage.read("log") == "said\n").await;
    assert_eq!(stage.read("run.lock").trim(), "300000");
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    until(|| rustix::process::test_kill_process(pid).is_err()).await;
}

#[test]
fn helpers_are_bounded() {
    let stage = Stage::new();
    let (long, short) = (Duration::from_secs(20), Duration::from_millis(50));
    let check = |script: &str, timeout, limit, expected: &str| {
        assert_eq!(stage.capture(script, timeout, limit), expected);
    };
    check(
        "cat; echo oops >&2; exit 3",
        long,
        100,
        r#"exit code 3, "from us", "oops""#,
    );
    check(
        "sleep 30 & wait",
        short,
        100,
        "`/bin/sh` did not end within 0.1 s",
    );
    check(
        "exec >&- 2>&-; sleep 30",
        short,
        100,
        "`/bin/sh` did not end within 0.1 s",
    );
    check("yes", long, 100, "`/bin/sh` wrote more than 100 bytes");
    check("yes >&2", long, 100, "`/bin/sh` wrote more than 100 bytes");
}

#[test]
fn a_program_has_an_exit_code_and_an_end_whoever_keeps_its_output() {
    let stage = Stage::new();
    let check = |script: &str, seconds, expected: &str| {
        let args = ["-c".into(), script.into()];
        let call = Capture {
            timeout: Duration::from_secs(seconds),
            limit: 8,
            ..Capture::new(Path::new("/bin/sh"), &args, stage.dir.path(), &stage.env)
        };
        let ended = end_of(&call, &AtomicBool::new(false)).unwrap();
        let exit = ended
            .exit
            .map_or("stopped".to_owned(), |exit| exit.to_string());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let said = format!(
            "{exit}, {:?}, {:?}",
            text(&ended.stdout),
            text(&ended.stderr)
        );
        assert_eq!(said, expected);
    };
    check(
        "echo a; echo b >&2; exit 3",
        60,
        r#"exit code 3, "a\n", "b\n""#,
    );
    let gone = |child: &str| {
        let child: u32 = stage.read(child).trim().parse().unwrap();
        match fs::read_to_string(format!("/proc/{child}/stat")) {
            // It may be a zombie that is not reaped yet.
            Ok(stat) => stat.contains(") Z "),
            Err(_) => true,
        }
    };
    check(
        "sleep 600 & echo $! > child; echo a",
        60,
        r#"exit code 0, "a\n", """#,
    );
    while !gone("child") {
        std::thread::yield_now();
    }
    // Includes a process that left the group.
    let apart = "setsid sh -c 'echo $$ > apart; exec sleep 600' & while ! [ -s apart ]; do :; done";
    for (end, limit, expected) in [
        ("exit 3", 60, r#"exit code 3, "", """#),
        ("sleep 600", 1, r#"stopped, "", """#),
    ] {
        let _ = fs::remove_file(stage.path("apart"));
        check(&format!("{apart}; {end}"), limit, expected);
        while !gone("apart") {
            std::thread::yield_now();
        }
    }
    check(
        "echo a; echo b >&2; sleep 600",
        1,
        r#"stopped, "a\n", "b\n""#,
    );
    check("exec >&- 2>&-; sleep 600", 1, r#"stopped, "", """#);
    check(
        "yes | head -c 3000000; echo last",
        60,
        r#"exit code 0, "\ny\nlast\n", """#,
    );
}

#[test]
fn a_missing_program_is_named() {
    let stage = Stage::new();
    let program = Path::new("/no/such/program");
    let call = Capture::new(program, &[], stage.dir.path(), &stage.env);
    let err = capture_blocking(&call).unwrap_err();
    assert_eq!(err.to_string(), "could not start `/no/such/program`");
}

#[track_caller]
fn check_environment(open_target: bool, expected: &str) {
    let asker: BTreeMap<String, String> = [
        "PATH",
        "HOME",
        "TMPDIR",
        "LANG",
        "LC_ALL",
        "LC_TIME",
        "https_proxy",
        "HTTPS_PROXY",
        "NO_PROXY",
        "SSH_AUTH_SOCK",
        "DOCKER_HOST",
        "KUBECONFIG",
        "AWS_SECRET_ACCESS_KEY",
        "ARM_CLIENT_SECRET",
        "TF_VAR_x",
        "TF_LOG",
        "TF_INPUT",
        "TF_CLI_ARGS",
        "TF_CLI_CONFIG_FILE",
        "GITHUB_TOKEN",
        "USER",
        "LD_PRELOAD",
        "Https_Proxy",
    ]
    .map(|name| (name.to_owned(), "asker".to_owned()))
    .into();
    let env = engine_environment(&asker, open_target);
    let lines: Vec<String> = env
        .exposed()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    assert_eq!(lines.join(" "), expected);
}

#[test]
fn an_engine_sees_what_the_table_says() {
    check_environment(
        false,
        "CHECKPOINT_DISABLE=1 HOME=asker HTTPS_PROXY=asker LANG=asker LC_ALL=asker LC_TIME=asker \
         NO_PROXY=asker PATH=asker TF_INPUT=0 TF_IN_AUTOMATION=1 TMPDIR=asker https_proxy=asker",
    );
    check_environment(
        true,
        "CHECKPOINT_DISABLE=1 DOCKER_HOST=asker HOME=asker HTTPS_PROXY=asker KUBECONFIG=asker LANG=asker \
         LC_ALL=asker LC_TIME=asker NO_PROXY=asker PATH=asker SSH_AUTH_SOCK=asker TF_INPUT=0 \
         TF_IN_AUTOMATION=1 TMPDIR=asker https_proxy=asker",
    );
}
