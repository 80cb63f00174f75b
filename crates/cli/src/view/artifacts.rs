//! The artifacts of a stack: names, sizes and digests, never contents.

use std::path::Path;

use control::state::artifacts::ArtifactFacts;
use model::base::ids::StackName;

use super::style::{TextRole, ViewOptions};
use super::table::Table;
use super::text::clean;

pub(crate) fn list(facts: &[ArtifactFacts], look: ViewOptions) -> String {
    let mut table = Table::new(["ARTIFACT", "BYTES", "SHA256"]).right(1);
    for file in facts {
        let name = clean(&file.path).into_owned();
        table.row([name, file.size.to_string(), file.sha256[..16].to_owned()]);
    }
    table.render(look)
}

/// A note below the outputs that the stack also has artifacts.
pub(crate) fn mention(stack: &StackName, count: usize, look: ViewOptions) -> String {
    let (files, they) = match count {
        1 => ("1 artifact is".to_owned(), "it"),
        count => (format!("{count} artifacts are"), "them"),
    };
    let words = format!("{files} kept: `terrane output {stack} --artifacts DIR` copies {they}");
    look.paint(TextRole::Faint, &words) + "\n"
}

pub(crate) fn copied(facts: &[ArtifactFacts], dir: &Path) -> String {
    let line = |file: &ArtifactFacts| {
        let path = dir.join(&file.path).display().to_string();
        format!("Written: `{}`\n", clean(&path))
    };
    facts.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_shows_no_more_than_names_sizes_and_digests() {
        let file = |path: &str, size| ArtifactFacts {
            path: path.to_owned(),
            size,
            sha256: "0123456789abcdef".repeat(4),
        };
        let facts = [file("kubeconfig", 5_678), file("out/talos\u{1b}[2J", 12)];
        insta::assert_snapshot!(list(&facts, ViewOptions::plain(60)), @r"
        ARTIFACT             BYTES   SHA256
        kubeconfig            5678   0123456789abcdef
        out/talos\u001b[2J      12   0123456789abcdef
        ");
    }
}
