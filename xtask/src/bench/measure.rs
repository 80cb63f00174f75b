//! Wall time, CPU time and memory of other processes.
//!
//! The CPU time of a loop is the kernel's sum over children that were waited for. terrane's runners outlive the
//! terminal, so no process waits for them. Each runner instead writes its usage, one line when it ends, to the
//! file that `TERRANE_BENCH_USAGE` names.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Linux reports CPU time in `/proc` in hundredths of a second, whatever the kernel's tick rate.
const TICK: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) wall: Duration,
    /// User and system time of all processes.
    pub(crate) cpu: Option<Duration>,
    /// terrane's own part: terminal and runners without engines.
    pub(crate) own: Option<Duration>,
}

impl Sample {
    pub(crate) fn of_wall(wall: Duration) -> Self {
        Self {
            wall,
            cpu: None,
            own: None,
        }
    }

    /// The CPU time of the engines, if terrane's own part is known.
    pub(crate) fn engines(&self) -> Option<Duration> {
        Some(self.cpu?.saturating_sub(self.own?))
    }
}

/// Runs to the end, and fails if the command fails.
pub(crate) fn run(command: &mut Command) -> io::Result<Sample> {
    let before = waited_for_cpu()?;
    let start = Instant::now();
    let output = command.output()?;
    let wall = start.elapsed();
    if !output.status.success() {
        return Err(failure(command, &output.stdout, &output.stderr));
    }
    Ok(Sample {
        wall,
        cpu: Some(waited_for_cpu()?.saturating_sub(before)),
        own: None,
    })
}

/// Runs terrane; the CPU time is what terminal and runners reported.
pub(crate) fn run_terrane(command: &mut Command, usage: &Path) -> io::Result<Sample> {
    let mut sample = run(command.env("TERRANE_BENCH_USAGE", usage))?;
    let account = std::fs::read_to_string(usage)
        .ok()
        .and_then(|text| Account::read(&text));
    sample.own = account.map(|account| account.own);
    sample.cpu = account.map(|account| account.own + account.engines);
    Ok(sample)
}

/// Runs to the end and samples the memory of all processes of one program.
pub(crate) fn peak_memory(command: &mut Command, program: &Path) -> io::Result<u64> {
    let program = program.canonicalize()?;
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait()));
    let mut peak = 0;
    loop {
        match receiver.recv_timeout(Duration::from_millis(20)) {
            Ok(status) if status.as_ref().is_ok_and(std::process::ExitStatus::success) => {
                return Ok(peak);
            }
            Ok(_) | Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Err(failure(command, b"", b""));
            }
            Err(mpsc::RecvTimeoutError::Timeout) => peak = peak.max(memory_of(&program)),
        }
    }
}

/// The usage that terminal and runners reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Account {
    own: Duration,
    engines: Duration,
}

impl Account {
    /// Parses lines such as `{"role":"runner","self_us":812,"children_us":104211}`. A terminal's children are
    /// runners, which have their own lines, so only the children of runners count.
    fn read(text: &str) -> Option<Self> {
        let mut account = Self::default();
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).ok()?;
            let micros = |key: &str| line[key].as_u64().map(Duration::from_micros);
            account.own += micros("self_us")?;
            if line["role"] == "runner" {
                account.engines += micros("children_us")?;
            }
        }
        (account != Self::default()).then_some(account)
    }
}

/// User and system time of children of this process that ended and were waited for.
fn waited_for_cpu() -> io::Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    parse_children_cpu(&stat).ok_or_else(|| io::Error::other("`/proc/self/stat` is not readable"))
}

fn parse_children_cpu(stat: &str) -> Option<Duration> {
    // The program's name may contain spaces and brackets; the numbers begin after the last bracket.
    let (_, numbers) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = numbers.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<u32>().ok();
    Some(TICK * (ticks(13)? + ticks(14)?))
}

/// The memory of all processes of this program in bytes; shared pages are divided among their users.
fn memory_of(program: &Path) -> u64 {
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return 0;
    };
    processes
        .flatten()
        .map(|process| process.path())
        .filter(|process| std::fs::read_link(process.join("exe")).is_ok_and(|exe| exe == *program))
        .filter_map(|process| std::fs::read_to_string(process.join("smaps_rollup")).ok())
        .filter_map(|text| parse_pss(&text))
        .sum()
}

fn parse_pss(rollup: &str) -> Option<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes * 1024)
}

fn failure(command: &Command, stdout: &[u8], stderr: &[u8]) -> io::Error {
    let said = String::from_utf8_lossy(if stderr.is_empty() { stdout } else { stderr });
    let lines: Vec<&str> = said.lines().collect();
    let tail = lines[lines.len().saturating_sub(20)..].join("\n");
    // Without the environment, which is long and not useful.
    let words: Vec<_> = [command.get_program()]
        .into_iter()
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect();
    io::Error::other(format!("`{}` failed\n{tail}", words.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_counted_whatever_the_program_is_called() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 100 200 0 0 3 4 50 25 20 0 1 0 99";
        assert_eq!(parse_children_cpu(stat), Some(Duration::from_millis(750)));
        assert_eq!(parse_children_cpu("7 (a) S 1"), None);
    }

    #[test]
    fn shared_memory_is_counted_once() {
        let rollup = "5581 ---p 00000000 00:00 0 [rollup]\nRss:   9000 kB\nPss:   2048 kB\nPss_Anon: 10 kB\n";
        assert_eq!(parse_pss(rollup), Some(2 * 1024 * 1024));
    }

    #[test]
    fn the_children_of_a_terminal_are_no_engines() {
        let text = "{\"role\":\"runner\",\"self_us\":10,\"children_us\":900}\n\
                    {\"role\":\"terminal\",\"self_us\":5,\"children_us\":915}\n";
        let expected = Account {
            own: Duration::from_micros(15),
            engines: Duration::from_micros(900),
        };
        assert_eq!(Account::read(text), Some(expected));
        assert_eq!(Account::read(""), None);
        assert_eq!(Account::read("half a li"), None);
    }

    #[test]
    fn this_process_has_a_stat() {
        assert!(waited_for_cpu().is_ok());
    }
}
