//! The outputs of a stack, in HCL.

use serde_json::Value;

use super::style::{TextRole, ViewOptions};
use super::text::{clean, pad, width};
use super::value;

#[derive(Clone, Debug, PartialEq)]
pub struct OutputView {
    pub name: String,
    /// `None` if it is sensitive and was not requested by name.
    pub value: Option<Value>,
}

/// `name = value`, with the `=` aligned.
pub fn render(outputs: &[OutputView], look: ViewOptions) -> String {
    let names: Vec<String> = outputs
        .iter()
        .map(|output| value::key(&output.name))
        .collect();
    let widest = names.iter().map(|name| width(name)).max().unwrap_or(0);
    let mut out = String::new();
    for (name, output) in names.iter().zip(outputs) {
        let start = format!("{} = ", pad(name, widest));
        let lines = match &output.value {
            None => vec![look.paint(TextRole::Faint, "(sensitive)")],
            Some(Value::String(text)) if reads_as_heredoc(text) => heredoc(text),
            Some(value) => value::lines(value, look.room(width(&start))),
        };
        out.push_str(&start);
        out.push_str(&lines.join("\n"));
        out.push('\n');
    }
    out
}

/// A single value.
pub fn render_value(value: &Value, look: ViewOptions) -> String {
    value::lines(value, look.room(0)).join("\n") + "\n"
}

fn reads_as_heredoc(text: &str) -> bool {
    // A heredoc always ends its last line, and ends at `EOT`.
    text.ends_with('\n') && text.lines().count() > 1 && !text.contains("EOT")
}

fn heredoc(text: &str) -> Vec<String> {
    let mut lines = vec!["<<EOT".to_owned()];
    lines.extend(text.split_terminator('\n').map(clean_line));
    lines.push("EOT".to_owned());
    lines
}

/// Keeps tabs: they are part of a text and harmless on a screen.
fn clean_line(line: &str) -> String {
    let parts: Vec<_> = line.split('\t').map(clean).collect();
    parts.join("\t")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn output(name: &str, value: Value) -> OutputView {
        OutputView {
            name: name.to_owned(),
            value: Some(value),
        }
    }

    #[test]
    fn outputs_of_every_kind() {
        let outputs = [
            output("cluster_name", json!("k8s-prod")),
            output("nodes", json!(3)),
            OutputView {
                name: "kube_config".to_owned(),
                value: None,
            },
            output(
                "subnets",
                json!({"nodes": "10.0.0.0/23", "gateway": "10.0.2.0/28", "b-1.x": null}),
            ),
            output(
                "cloud_init",
                json!("#cloud-config\nusers:\n  - name: op\x1b[2J\n"),
            ),
            output("two_lines", json!("one\ntwo")),
        ];
        insta::assert_snapshot!(render(&outputs, ViewOptions::plain(60)), @r#"
        cluster_name = "k8s-prod"
        nodes        = 3
        kube_config  = (sensitive)
        subnets      = {
          nodes   = "10.0.0.0/23"
          gateway = "10.0.2.0/28"
          "b-1.x" = null
        }
        cloud_init   = <<EOT
        #cloud-config
        users:
          - name: op\u001b[2J
        EOT
        two_lines    = "one\ntwo"
        "#);
    }

    #[test]
    fn no_outputs() {
        assert_eq!(render(&[], ViewOptions::plain(80)), "");
    }
}
