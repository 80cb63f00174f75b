//! A page of documentation: its `console` blocks, and every other place at which a command may stand.

use std::path::Path;

pub(super) struct Page {
    /// From the repository's root.
    pub(super) path: String,
    text: String,
}

/// A line of a block, or what stands between backticks in a sentence.
pub(super) struct Command {
    line: usize,
    pub(super) text: String,
    pub(super) is_inline: bool,
}

/// Kinds of blocks whose lines may be commands. In others, commands are values of something else.
const COMMANDS: [&str; 4] = ["sh", "bash", "text", ""];

impl Page {
    pub(super) fn read(root: &Path, path: &Path) -> Self {
        let text = std::fs::read_to_string(root.join(path));
        Self {
            path: path.display().to_string(),
            text: text.unwrap_or_else(|err| panic!("{}: {err}", path.display())),
        }
    }

    /// The place of a command, for messages: `guide.md:12`, then the command.
    pub(super) fn at(&self, command: &Command) -> String {
        format!("{}:{}: `{}`", self.path, command.line, command.text)
    }

    /// The directory that `<!-- console: DIR -->` names.
    pub(super) fn scratch(&self) -> Option<&str> {
        let (_, rest) = self.text.split_once("<!-- console:")?;
        Some(rest.split_once("-->")?.0.trim())
    }

    /// The commands of `console` blocks, without what they print.
    pub(super) fn console(&self) -> Vec<Command> {
        let lines = self.blocks().filter(|(kind, _, _)| *kind == "console");
        let commands = lines.filter_map(|(_, line, text)| {
            let text = text.strip_prefix("$ ")?.to_owned();
            let is_inline = false;
            Some(Command {
                line,
                text,
                is_inline,
            })
        });
        commands.collect()
    }

    /// Commands of `console` blocks that would not be run, since they do not begin with `$ `.
    pub(super) fn unmarked(&self) -> Vec<Command> {
        let lines = self.blocks().filter(|(kind, _, _)| *kind == "console");
        let lines = lines.filter(|(_, _, text)| text.starts_with("terrane "));
        let commands = lines.map(|(_, line, text)| Command {
            line,
            text: text.to_owned(),
            is_inline: false,
        });
        commands.collect()
    }

    /// All other commands.
    pub(super) fn commands(&self) -> Vec<Command> {
        let mut found = self.inline();
        for (kind, line, text) in self.blocks() {
            let text = text.trim().trim_start_matches("$ ");
            let text = if kind == "yaml" {
                let text = text.trim_start_matches("- ");
                text.strip_prefix("run: ").unwrap_or(text)
            } else if COMMANDS.contains(&kind) {
                text
            } else {
                continue;
            };
            // Text that only mentions the program is no command.
            if matches!(kind, "yaml" | "text" | "") && !text.starts_with("terrane ") {
                continue;
            }
            let (text, is_inline) = (text.to_owned(), false);
            found.push(Command {
                line,
                text,
                is_inline,
            });
        }
        found
    }

    /// Every line in a block: the block's kind, the line's number, its text.
    fn blocks(&self) -> impl Iterator<Item = (&str, usize, &str)> {
        let mut kind = None;
        let numbered = (1..).zip(self.text.lines());
        numbered.filter_map(move |(number, line)| {
            if let Some(rest) = line.trim_start().strip_prefix("```") {
                kind = match kind {
                    None => Some(rest.trim()),
                    Some(_) => None,
                };
                return None;
            }
            Some((kind?, number, line))
        })
    }

    /// What stands between backticks in a paragraph and begins as a command does.
    fn inline(&self) -> Vec<Command> {
        let in_blocks: Vec<usize> = self.blocks().map(|(_, number, _)| number).collect();
        let mut found = Vec::new();
        let (mut paragraph, mut first) = (String::new(), 1);
        for (number, line) in (1..).zip(self.text.lines().chain([""])) {
            let is_text = !in_blocks.contains(&number) && !line.trim_start().starts_with("```");
            if is_text && !line.trim().is_empty() {
                paragraph.push_str(line);
                paragraph.push('\n');
                continue;
            }
            spans(&paragraph, first, &mut found);
            paragraph.clear();
            first = number + 1;
        }
        found
    }
}

/// A span begins and ends with the same number of backticks.
fn spans(paragraph: &str, first: usize, found: &mut Vec<Command>) {
    let mut at = 0;
    while let Some(open) = paragraph[at..].find('`') {
        let open = at + open;
        let fence: String = paragraph[open..]
            .chars()
            .take_while(|c| *c == '`')
            .collect();
        let from = open + fence.len();
        let Some(length) = paragraph[from..].find(&fence) else {
            return;
        };
        let text = paragraph[from..from + length].replace('\n', " ");
        if text.starts_with("terrane ") {
            let line = first + paragraph[..open].matches('\n').count();
            let is_inline = true;
            found.push(Command {
                line,
                text,
                is_inline,
            });
        }
        at = from + length + fence.len();
    }
}

impl Command {
    /// The exit code that its comment announces: `# exit 5: a gate does not pass`.
    pub(super) fn exit(&self) -> u8 {
        let announced = self
            .text
            .rsplit_once("# exit ")
            .map_or("", |(_, rest)| rest);
        let digits: String = announced.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or(0)
    }
}
