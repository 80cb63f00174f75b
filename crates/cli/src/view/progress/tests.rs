//! Frames as they are seen, on a terminal and in a log.

use super::live::{LiveProgress, TerminalSize};
use super::plain::PlainProgress;
use super::*;
use crate::view::color_tags::tagged;

fn row(stack: &str, mark: ProgressStatus, text: &str, elapsed: Option<u64>) -> ProgressRow {
    ProgressRow {
        stack: stack.to_owned(),
        mark,
        text: text.to_owned(),
        elapsed: elapsed.map(Duration::from_secs),
    }
}

fn frame() -> ProgressFrame {
    ProgressFrame {
        title: "change set c42 on `azure`".to_owned(),
        elapsed: Duration::from_secs(41),
        done: 2,
        total: 4,
        rows: vec![
            row(
                "network",
                ProgressStatus::Done,
                "applied 1 change, verified",
                Some(14),
            ),
            row(
                "k8s-prod",
                ProgressStatus::Running,
                "applying   module.cluster.azurerm_kubernetes_cluster.this: still creating",
                Some(27),
            ),
            row(
                "dns",
                ProgressStatus::Waiting,
                "waits for `k8s-prod` to be verified",
                None,
            ),
            row("k8s-dev", ProgressStatus::Unchanged, "no changes", None),
        ],
    }
}

fn shown(frame: &ProgressFrame, look: ViewOptions, height: usize) -> String {
    frame.lines(look, height).join("\n")
}

#[test]
fn a_frame() {
    insta::assert_snapshot!(shown(&frame(), ViewOptions::plain(100), 30), @"
    change set c42 on `azure`                                   00:41  ━━━━━━━━━━━━╸────────────  2 of 4
    ✓ network    applied 1 change, verified                                                        00:14
    ● k8s-prod   applying   module.cluster.azurerm_kubernetes_cluster.this: still creating         00:27
    ○ dns        waits for `k8s-prod` to be verified
      k8s-dev    no changes
    ");
}

#[test]
fn a_frame_in_ascii() {
    insta::assert_snapshot!(shown(&frame(), ViewOptions::ascii(80), 30), @"
    change set c42 on `azure`               00:41  ============>------------  2 of 4
    * network    applied 1 change, verified                                    00:14
    > k8s-prod   applying   module.cluster.azurerm_...r.this: still creating   00:27
    . dns        waits for `k8s-prod` to be verified
      k8s-dev    no changes
    ");
}

#[test]
fn a_frame_in_colour() {
    let look = ViewOptions {
        color: true,
        ..ViewOptions::plain(80)
    };
    insta::assert_snapshot!(tagged(&shown(&frame(), look, 30)), @"
    <bold>change set c42 on `azure`</>               00:41  <green>━━━━━━━━━━━━╸</><faint>────────────</>  2 of 4
    <green>✓</> network    applied 1 change, verified                                    <faint>00:14</>
    <cyan>●</> k8s-prod   applying   module.cluster.azurerm_k…er.this: still creating   <faint>00:27</>
    <faint>○</> dns        <faint>waits for `k8s-prod` to be verified</>
      k8s-dev    <faint>no changes</>
    ");
}

fn crowd() -> ProgressFrame {
    let mut rows = vec![row(
        "broken",
        ProgressStatus::Failed,
        "failed while planning",
        Some(2),
    )];
    rows.extend((0..12).map(|n| {
        row(
            &format!("done-{n}"),
            ProgressStatus::Done,
            "applied 1 change",
            Some(n),
        )
    }));
    rows.push(row("busy", ProgressStatus::Running, "planning", Some(3723)));
    rows.extend((0..6).map(|n| {
        row(
            &format!("later-{n}"),
            ProgressStatus::Waiting,
            "waits for `busy`",
            None,
        )
    }));
    ProgressFrame {
        done: 13,
        total: 20,
        rows,
        ..frame()
    }
}

#[test]
fn more_stacks_than_lines() {
    insta::assert_snapshot!(shown(&crowd(), ViewOptions::plain(80), 9), @"
    change set c42 on `azure`             00:41  ━━━━━━━━━━━━━━━━╸────────  13 of 20
    ✗ broken    failed while planning                                          00:02
    ✓ done-10   applied 1 change                                               00:10
    ✓ done-11   applied 1 change                                               00:11
    ● busy      planning                                                     1:02:03
    ○ later-0   waits for `busy`
    ○ later-1   waits for `busy`
    ○ later-2   waits for `busy`
      … and 10 more done, 3 more waiting
    ");
}

#[test]
fn no_line_is_wider_and_no_frame_higher_than_the_terminal() {
    for mut frame in [frame(), crowd()] {
        frame.rows.push(row(
            &"名".repeat(40),
            ProgressStatus::Running,
            &"東京\x1b[2J".repeat(40),
            Some(90_000),
        ));
        for look in [ViewOptions::plain, ViewOptions::ascii] {
            for width in 0..130 {
                for height in 0..30 {
                    let lines = frame.lines(look(width), height);
                    assert!(lines.len() <= height, "{height}: {lines:#?}");
                    for line in lines {
                        assert!(text::width(&line) <= width, "{width}: {line}");
                        assert!(!line.contains('\x1b'), "{line}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_log_has_a_line_for_each_change() {
    let mut plain = PlainProgress::new(ViewOptions {
        color: true,
        ..ViewOptions::plain(80)
    });
    let mut frame = frame();
    frame.rows[0] = row("network", ProgressStatus::Running, "planning", None);
    frame.rows[1] = row(
        "k8s-prod",
        ProgressStatus::Waiting,
        "waits for `network`",
        None,
    );
    frame.elapsed = Duration::ZERO;
    let mut log = plain.lines(&frame);
    frame.elapsed = Duration::from_secs(2);
    assert_eq!(plain.lines(&frame), "");
    frame.rows[0] = row("network", ProgressStatus::Done, "applied 1 change", Some(2));
    frame.rows[1] = row("k8s-prod", ProgressStatus::Running, "planning", Some(0));
    log.push_str(&plain.lines(&frame));
    frame.elapsed = Duration::from_secs(3605);
    frame.rows[1] = row(
        "k8s-prod",
        ProgressStatus::Failed,
        "failed while planning\x1b[2J",
        Some(3603),
    );
    frame.rows[2] = row(
        "dns",
        ProgressStatus::Skipped,
        "skipped: `k8s-prod` did not succeed",
        None,
    );
    log.push_str(&plain.lines(&frame));
    insta::assert_snapshot!(log, @r"
    change set c42 on `azure`
    00:00  ● network    planning
    00:00    k8s-dev    no changes
    00:02  ✓ network    applied 1 change
    00:02  ● k8s-prod   planning
    1:00:05  ✗ k8s-prod   failed while planning\u001b[2J
    1:00:05    dns        skipped: `k8s-prod` did not succeed
    ");
}

/// Just enough of a terminal to see what `Live` leaves on it.
#[derive(Default)]
struct Screen {
    rows: Vec<Vec<char>>,
    row: usize,
    column: usize,
    cursor_shown: bool,
}

impl Screen {
    fn feed(&mut self, bytes: &[u8]) {
        let mut rest = std::str::from_utf8(bytes).unwrap();
        while let Some(c) = rest.chars().next() {
            self.rows
                .resize(self.rows.len().max(self.row + 1), Vec::new());
            if let Some(sequence) = rest.strip_prefix("\x1b[") {
                let end = sequence.find(|c: char| c.is_ascii_alphabetic()).unwrap();
                self.control(&sequence[..end], &sequence[end..=end]);
                rest = &sequence[end + 1..];
                continue;
            }
            match c {
                '\n' => (self.row, self.column) = (self.row + 1, 0),
                '\r' => self.column = 0,
                _ => {
                    let row = &mut self.rows[self.row];
                    row.resize(row.len().max(self.column + 1), ' ');
                    row[self.column] = c;
                    self.column += 1;
                }
            }
            rest = &rest[c.len_utf8()..];
        }
    }

    fn control(&mut self, argument: &str, kind: &str) {
        match (argument, kind) {
            ("?25", "l") => self.cursor_shown = false,
            ("?25", "h") => self.cursor_shown = true,
            (up, "A") => self.row -= up.parse::<usize>().unwrap(),
            ("", "K") => self.rows[self.row].truncate(self.column),
            other => panic!("unexpected {other:?}"),
        }
    }

    fn text(&self) -> String {
        let rows: Vec<String> = self.rows.iter().map(|row| row.iter().collect()).collect();
        rows.join("\n").trim_end().to_owned()
    }
}

#[test]
fn frames_are_drawn_over_each_other() {
    let size = TerminalSize {
        width: 81,
        height: 24,
    };
    let mut bytes = Vec::new();
    let mut live = LiveProgress::new(&mut bytes, ViewOptions::plain(80));
    live.draw(&crowd(), size).unwrap();
    live.print("warning: something that stays, and is too long for one line of this terminal: broken between words\n", size)
        .unwrap();
    live.draw(&crowd(), size).unwrap();
    live.draw(&frame(), size).unwrap();
    live.finish().unwrap();
    drop(live);
    let mut screen = Screen::default();
    screen.feed(&bytes);
    assert!(screen.cursor_shown);
    insta::assert_snapshot!(screen.text(), @"
    warning: something that stays, and is too long for one line of this terminal:
    broken between words
    change set c42 on `azure`               00:41  ━━━━━━━━━━━━╸────────────  2 of 4
    ✓ network    applied 1 change, verified                                    00:14
    ● k8s-prod   applying   module.cluster.azurerm_k…er.this: still creating   00:27
    ○ dns        waits for `k8s-prod` to be verified
      k8s-dev    no changes
    ");
}

#[test]
fn the_same_frame_is_not_drawn_again() {
    let size = TerminalSize {
        width: 80,
        height: 24,
    };
    let mut bytes = Vec::new();
    let mut live = LiveProgress::new(&mut bytes, ViewOptions::plain(80));
    live.draw(&frame(), size).unwrap();
    live.draw(&frame(), size).unwrap();
    drop(live);
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!(text.matches("change set c42").count(), 1);
    assert!(text.ends_with("\x1b[?25h"), "the cursor comes back");
}

#[test]
fn a_frame_that_the_terminal_has_broken_is_cleared_whole() {
    let mut bytes = Vec::new();
    let mut live = LiveProgress::new(&mut bytes, ViewOptions::plain(80));
    live.draw(
        &frame(),
        TerminalSize {
            width: 81,
            height: 24,
        },
    )
    .unwrap();
    live.clear(TerminalSize {
        width: 41,
        height: 24,
    })
    .unwrap();
    drop(live);
    // Four lines are broken in two now, the last one is not.
    assert!(String::from_utf8(bytes).unwrap().contains("\x1b[9A"));
}
